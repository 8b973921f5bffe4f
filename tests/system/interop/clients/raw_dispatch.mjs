// A way past the client of the TypeScript SDK 2, for its ext-tasks.

/** Sends requests past the client, which knows no `resultType: "task"`; ext-tasks wants such a way. */
export function rawDispatch(transport) {
  const waiting = new Map();
  const toClient = transport.onmessage;
  transport.onmessage = (message, extra) => {
    const settle = message.method ? undefined : waiting.get(message.id);
    if (settle) settle(message);
    else toClient?.(message, extra);
  };
  return async (request, { signal } = {}) => {
    const id = `raw-${crypto.randomUUID()}`;
    const answer = new Promise((resolve, reject) => {
      waiting.set(id, resolve);
      signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
    });
    try {
      await transport.send({ jsonrpc: '2.0', id, ...request }, { requestSignal: signal });
      const { result, error } = await answer;
      return error ? { kind: 'error', error } : { kind: 'result', result };
    } finally {
      waiting.delete(id);
    }
  };
}
