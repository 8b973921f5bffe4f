// What the Node programs share that only call tools; see plain_calls.py.
import { report } from './programs.mjs';

export const [name, calls, ...server] = process.argv.slice(2);

const short = (block) =>
  Object.fromEntries(
    Object.entries(block).map(([key, value]) => [
      key,
      ['text', 'data'].includes(key) && value.length > 3000 ? value.length : value,
    ]),
  );

/** Calls the tools of each scenario, and tells what was given. The client holds results against the schemas. */
export async function tell(client) {
  const { tools } = await client.listTools();
  const told = async ({ tool, arguments: args = {}, meta }) => {
    const result = await client.callTool({ name: tool, arguments: args, ...(meta && { _meta: meta }) });
    return {
      isError: Boolean(result.isError),
      structured: result.structuredContent ?? null,
      meta: result._meta,
      content: result.content.map(short),
    };
  };
  const scenarios = Object.entries(JSON.parse(calls)).map(([scenario, call]) => [scenario, () => told(call)]);
  await report({
    listed: () => ({ schemas: Object.fromEntries(tools.map((tool) => [tool.name, tool.outputSchema ?? null])) }),
    ...Object.fromEntries(scenarios),
  });
  await client.close();
}
