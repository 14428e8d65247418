// Requests to the server that this page came from. Nothing else is ever asked.

const timeout_ms = 15_000;

// An answer that is not a success. `status` 0: there was no answer.
export class ApiError extends Error {
  constructor(status, message, advice) {
    super(message);
    this.status = status;
    this.advice = advice;
  }
}

export async function request(path, { method = 'GET', body } = {}) {
  let response;
  try {
    response = await fetch(`api/v1/${path}`, {
      method,
      headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin',
      signal: AbortSignal.timeout(timeout_ms),
    });
  } catch {
    throw new ApiError(0, 'the server does not answer');
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new ApiError(response.ok ? 0 : response.status, `the server's answer is not complete (status ${response.status})`);
  }
  if (!response.ok) {
    throw new ApiError(response.status, answer.error?.message ?? `the server answered with status ${response.status}`, answer.error?.advice);
  }
  return answer;
}
