// Makes calls with @modelcontextprotocol/sdk 1.x, and prints what came of each: see calls.py.
//
//     node calls_typescript_1.mjs held|task URL
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { clientInfo, makeCalls, meta, onlog, onprogress, requestInit, url, way } from './calls.mjs';

const client = new Client(clientInfo, { capabilities: {} });
client.setNotificationHandler(LoggingMessageNotificationSchema, onlog);
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
await client.setLoggingLevel('info').catch(() => {}); // not every server knows of it
await client.listTools();

await makeCalls(async (name, args) => {
  const params = { name, arguments: args, _meta: meta };
  if (way === 'held') return client.callTool(params, CallToolResultSchema, { onprogress });
  const { tasks } = client.experimental;
  const stream = tasks.callToolStream(params, CallToolResultSchema, { task: { ttl: 60_000 } });
  const { value: made } = await stream.next();
  if (made.error) throw made.error;
  // Not by the stream: it reads nothing of a task that failed but its status.
  return tasks.getTaskResult(made.task.taskId, CallToolResultSchema);
});
await client.close();
