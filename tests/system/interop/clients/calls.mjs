// What the Node programs that compare have in common; the same as calls.py.
import { readFileSync } from 'node:fs';

export const [way, url, era] = process.argv.slice(2);
export const requestInit = {
  headers: {
    Authorization: 'Bearer opensesame',
    Cookie: 'session=tasty',
    'X-Api-Key': 'key-of-ada',
    'X-Team': 'lab',
    'X-Trace-Id': '1-2-3',
    'User-Agent': 'sameness/1',
  },
};
export const meta = { 'example.com/asked': { deep: [1] }, 'io.modelcontextprotocol/logLevel': 'info' };
export const clientInfo = { name: 'sameness', version: '7' };

let progress, logs;
export const onprogress = (told) => progress.push([told.progress, told.total ?? null, told.message ?? null]);
export const onlog = ({ params }) => logs.push([params.level, params.logger ?? null, params.data]);

/** Makes the calls of standard input in turn and prints a line about each. */
export async function makeCalls(call) {
  for (const [name, tool, args] of JSON.parse(readFileSync(0, 'utf8'))) {
    progress = [];
    logs = [];
    let outcome;
    try {
      outcome = { result: await call(tool, args) };
    } catch (error) {
      outcome = { error: { code: error.code, message: error.message, data: error.data } };
    }
    console.log(JSON.stringify({ name, ...outcome, progress, logs }));
  }
}
