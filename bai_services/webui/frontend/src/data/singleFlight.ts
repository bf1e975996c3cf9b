const inFlight = new Map<string, Promise<Response>>();

/** Send a request; a change that is being sent is not sent again.
 *
 * A form that is submitted twice on a slow network gets the response of the first request twice.
 */
export async function sendOnce(request: Request): Promise<Response> {
  if (request.method === 'GET') {
    return fetch(request);
  }
  const key = `${request.method} ${request.url} ${await request.clone().text()}`;
  let response = inFlight.get(key);
  if (!response) {
    response = fetch(request);
    inFlight.set(key, response);
    const forget = () => void inFlight.delete(key);
    request.signal.addEventListener('abort', forget);
    response.then(forget, forget);
  }
  return (await response).clone();
}
