// What the Node programs share: how they are told of the server, and how they tell of each scenario.

/** Makes new transports to the server of `http URL` or `stdio COMMAND ARGUMENT...`. */
export function transports([kind, target, ...args], { Http, Stdio }) {
  return () => (kind === 'http' ? new Http(new URL(target)) : new Stdio({ command: target, args, env: process.env }));
}

/** Runs the scenarios in turn and prints one line of JSON about each: what it returned, or the error it met. */
export async function report(scenarios) {
  for (const [scenario, run] of Object.entries(scenarios)) {
    let outcome;
    try {
      outcome = await run();
    } catch (error) {
      outcome = { code: error.code, message: error.message };
    }
    console.log(JSON.stringify({ scenario, ...outcome }));
  }
}

export const textOf = (result) => result?.content?.[0]?.text;
