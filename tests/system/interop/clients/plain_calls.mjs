// What the Node programs share that only call tools; see plain_calls.py.
import { existsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { report } from './programs.mjs';

export const [name, calls, ...server] = process.argv.slice(2);

const seen = async (file) => {
  while (file && !existsSync(file)) await pause(50);
};

const short = (block) =>
  Object.fromEntries(
    Object.entries(block).map(([key, value]) => [
      key,
      ['text', 'data'].includes(key) && value.length > 3000 ? value.length : value,
    ]),
  );

/** Calls the tools of each scenario, and tells what was given. The client holds results against the schemas. */
export async function tell(client, { old = false } = {}) {
  const { tools } = await client.listTools();
  const call = (params, options) =>
    options.old ? client.callTool(params, undefined, options) : client.callTool(params, options);
  const told = async ({ tool, arguments: args = {}, meta, timeout_s, stop_at, after }) => {
    await seen(after);
    const options = { old, ...(timeout_s && { timeout: 1000 * timeout_s }) };
    const calling = new AbortController();
    if (stop_at) {
      options.signal = calling.signal;
      seen(stop_at).then(() => calling.abort());
    }
    const result = await call({ name: tool, arguments: args, ...(meta && { _meta: meta }) }, options);
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
