// @modelcontextprotocol/client 2.x at 2026-07-28 calls tools; it holds results against the listed output schemas.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { name, server, tell } from './plain_calls.mjs';
import { transports } from './programs.mjs';

const client = new Client({ name, version: '1' }, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
await client.connect(transports(server, { Http: StreamableHTTPClientTransport, Stdio: StdioClientTransport })());
await tell(client);
