// Requests to the server that this page came from. Nothing else is ever asked.

const timeout_ms = 15_000;

// The second secret of the session: with it, a request may do what the token may. It is nowhere but here, so a page that was loaded again
// only reads.
/** @type {string | undefined} */
let session_secret;

/** @param {string | undefined} secret */
export function keep_session_secret(secret) {
  session_secret = secret;
}

// An answer that is not a success. `status` 0: there was no answer.
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {string} [advice]
   */
  constructor(status, message, advice) {
    super(message);
    this.status = status;
    this.advice = advice;
  }
}

// What to do where the server does not say it.
/** @type {Record<number, string>} */
const advice_by_status = {
  0: 'check that berth serve is running and that this computer can reach it',
  401: 'log in again',
  403: 'log in again with a token of that role',
  503: 'try again in a few seconds',
};

/**
 * What went wrong, and what to do about it, with a full stop.
 * @param {unknown} error
 */
export function words_of(error) {
  if (!(error instanceof ApiError)) return `this page failed (${error}); reload it.`;
  // For a plan that is out of date, the server names the command that makes another; the page has a button for it.
  const advice = error.advice?.startsWith('plan again') ? '' : error.advice || advice_by_status[error.status];
  const text = advice ? `${error.message}; ${advice}` : error.message;
  return /[.?!]$/.test(text) ? text : `${text}.`;
}

/** @typedef {{ method?: string, body?: unknown, signal?: AbortSignal }} Options */

/**
 * @param {string} path
 * @param {Options} options
 */
function send(path, { method = 'GET', body, signal }) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (session_secret) headers['Berth-Session-Secret'] = session_secret;
  return fetch(`api/v1/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'same-origin', signal });
}

/**
 * @param {Response} response
 * @param {{ error?: { message?: string, advice?: string } } | undefined} answer
 */
function error_of(response, answer) {
  return new ApiError(response.status, answer?.error?.message ?? `the server answered with status ${response.status}`, answer?.error?.advice);
}

/**
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>} the answer, whose type the path tells
 */
export async function request(path, { method, body } = {}) {
  let response;
  try {
    response = await send(path, { method, body, signal: AbortSignal.timeout(timeout_ms) });
  } catch {
    throw new ApiError(0, 'the server does not answer');
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new ApiError(response.ok ? 0 : response.status, `the server's answer is not complete (status ${response.status})`);
  }
  if (!response.ok) throw error_of(response, answer);
  return answer;
}

/**
 * Gives every piece of text to `take` as it comes, until the answer ends or `signal` aborts it.
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {(piece: string) => void} take
 */
export async function read_text(path, signal, take) {
  let response;
  try {
    response = await send(path, { signal });
  } catch {
    throw new ApiError(0, 'the server does not answer');
  }
  if (!response.ok) throw error_of(response, await response.json().catch(() => undefined));
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new ApiError(0, 'the connection to the server was lost');
    });
    if (done) return;
    take(value);
  }
}
