// Makes calls with @modelcontextprotocol/client 2.x at 2026-07-28, and prints what came of each: see calls.py.
//
//     node calls_typescript_2.mjs held|task URL
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';
import { clientInfo, makeCalls, meta, onlog, onprogress, requestInit, url, way } from './calls.mjs';
import { rawDispatch } from './raw_dispatch.mjs';

const protocolVersion = '2026-07-28';
const capabilities = way === 'task' ? { extensions: { 'io.modelcontextprotocol/tasks': {} } } : {};
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: { pin: protocolVersion } } });
client.setNotificationHandler('notifications/message', onlog);
await client.connect(transport);
await client.listTools();

const session =
  way === 'task' &&
  createTaskSessionFromClient(client, {
    endpointId: 'sameness',
    rawDispatch: rawDispatch(transport),
    v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: capabilities },
  });

await makeCalls(async (name, args) => {
  if (!session) return client.callTool({ name, arguments: args, _meta: meta }, { onprogress });
  const execution = await session.callTool(name, args, { task: { preference: 'require' } });
  const { result, error } = (await execution.settle()).outcome;
  if (error) throw error;
  return result;
});
if (session) await session.close();
await client.close();
