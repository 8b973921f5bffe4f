// @modelcontextprotocol/sdk 1.x, whose experimental tasks are those of 2025-11-25.
//
//     node typescript_1.mjs http URL
//     node typescript_1.mjs stdio COMMAND ARGUMENT...
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { report, textOf, transports } from './programs.mjs';

const newTransport = transports(process.argv.slice(2), {
  Http: StreamableHTTPClientTransport,
  Stdio: StdioClientTransport,
});

async function connect(capabilities) {
  const client = new Client({ name: 'typescript-1', version: '1' }, { capabilities });
  await client.connect(newTransport());
  return client;
}

const client = await connect({ elicitation: { form: {} } });
const asked = [];
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  asked.push(params.message);
  return { action: 'accept', content: { name: 'Ada' } };
});
await client.listTools(); // the client learns here which tools run as tasks
const { tasks } = client.experimental;

const start = (name, args = {}) =>
  tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: { ttl: 60_000 } });

async function settled(stream) {
  const seen = [];
  let taskId, outcome;
  for await (const { task, result, error } of stream) {
    if (task) {
      seen.push(task.status);
      ({ taskId } = task);
    }
    if (result) outcome = { text: textOf(result), isError: result.isError };
    if (error) outcome = { code: error.code, message: error.message };
  }
  return { seen, status: (await tasks.getTask(taskId)).status, ...outcome };
}

async function withoutTasks(call) {
  const plain = await connect({});
  try {
    return { text: textOf(await plain.callTool(call)) };
  } finally {
    await plain.close();
  }
}

await report({
  working: () => settled(start('slow', { n: 3, step_s: 0.1 })),
  input_required: async () => ({ ...(await settled(start('ask'))), asked }),
  cancelled: async () => {
    const { value: created } = await start('slow', { n: 10000 }).next();
    return { status: (await tasks.cancelTask(created.task.taskId)).status };
  },
  tool_error: () => settled(start('fail')),
  timed_out: () => settled(start('short')),
  unknown_id: () => tasks.getTask('tsk_unknown'),
  missing_capability: () => withoutTasks({ name: 'must', arguments: {} }),
  plain_call: () => withoutTasks({ name: 'slow', arguments: { n: 3 } }),
});
await client.close();
