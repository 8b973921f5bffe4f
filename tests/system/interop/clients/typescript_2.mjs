// @modelcontextprotocol/client 2.x with ext-tasks, at 2026-07-28 or in its legacy mode, which is 2025-11-25.
//
//     node typescript_2.mjs modern|legacy http URL
//     node typescript_2.mjs modern|legacy stdio COMMAND ARGUMENT...
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createApplicationInputHandler, createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';
import { report, textOf, transports } from './programs.mjs';
import { rawDispatch } from './raw_dispatch.mjs';

const [era, ...server] = process.argv.slice(2);
const modern = era === 'modern';
const protocolVersion = modern ? '2026-07-28' : '2025-11-25';
const clientInfo = { name: 'typescript-2', version: '1' };
const withTasks = { elicitation: { form: {} }, ...(modern && { extensions: { 'io.modelcontextprotocol/tasks': {} } }) };
const newTransport = transports(server, { Http: StreamableHTTPClientTransport, Stdio: StdioClientTransport });

async function connect(capabilities) {
  const transport = newTransport();
  const mode = modern ? { pin: protocolVersion } : 'legacy';
  const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode } });
  await client.connect(transport);
  return { client, transport };
}

const { client, transport } = await connect(withTasks);
const asked = [];
const session = createTaskSessionFromClient(client, {
  endpointId: 'interop',
  ...(modern && {
    rawDispatch: rawDispatch(transport),
    v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: withTasks },
  }),
  onInputRequest: createApplicationInputHandler({
    elicitation: (request) => {
      asked.push(request.params.message);
      return { action: 'accept', content: { name: 'Ada' } };
    },
    sampling: () => Promise.reject(new Error('no sampling here')),
    roots: () => ({ roots: [] }),
  }),
});

const start = (tool, args = {}) => session.callTool(tool, args, { task: { preference: 'require' } });

async function settled(execution) {
  const seen = [];
  const onEvent = (event) => event.type === 'task' && seen.push(event.task.status);
  const { outcome } = await execution.settle({ onEvent });
  const { status, result, error } = outcome;
  return { seen, status, text: textOf(result), isError: result?.isError, code: error?.code, message: error?.message };
}

async function withoutTasks(call) {
  const plain = await connect({});
  try {
    return { text: textOf(await plain.client.callTool(call)) };
  } finally {
    await plain.client.close();
  }
}

await report({
  working: async () => settled(await start('slow', { n: 3, step_s: 0.1 })),
  input_required: async () => ({ ...(await settled(await start('ask'))), asked }),
  cancelled: async () => {
    const execution = await start('slow', { n: 10000 });
    await execution.cancel();
    await execution.settle();
    let status;
    do ({ status } = await session.task(execution.handle.taskId).snapshot());
    while (status === 'working');
    return { status };
  },
  tool_error: async () => settled(await start('fail')),
  timed_out: async () => settled(await start('short')),
  unknown_id: () => session.task('tsk_unknown').snapshot(),
  missing_capability: () => withoutTasks({ name: 'must', arguments: {} }),
  plain_call: () => withoutTasks({ name: 'slow', arguments: { n: 3 } }),
});
await session.close();
await client.close();
