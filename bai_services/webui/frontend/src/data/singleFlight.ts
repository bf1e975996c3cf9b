import { sendSignedIn } from './signIn';

const inFlight = new Map<string, Promise<Response>>();

/** Send a request. If an identical request other than GET is in flight, wait for its response.
 *
 * A user who submits a form twice on a slow network thus sends only one request.
 */
export async function sendOnce(request: Request): Promise<Response> {
  if (request.method === 'GET') {
    return sendSignedIn(request);
  }
  const key = `${request.method} ${request.url} ${await request.clone().text()}`;
  let response = inFlight.get(key);
  if (!response) {
    response = sendSignedIn(request);
    inFlight.set(key, response);
    const forget = () => void inFlight.delete(key);
    request.signal.addEventListener('abort', forget);
    response.then(forget, forget);
  }
  return (await response).clone();
}
