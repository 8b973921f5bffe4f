// @modelcontextprotocol/sdk 1.x calls tools; it holds results against the listed output schemas.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { name, server, tell } from './plain_calls.mjs';
import { transports } from './programs.mjs';

const client = new Client({ name, version: '1' });
await client.connect(transports(server, { Http: StreamableHTTPClientTransport, Stdio: StdioClientTransport })());
await tell(client, { old: true });
