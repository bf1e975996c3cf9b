import { useEffect } from 'react';
import { config } from '../config';
import { requirePageUser, type Me } from './accounts/me';
import { currentConnection, reportSignIn, reportSignOut } from './connection';
import { isNoFileContent } from './events';
import { queries } from './queries';
import { refusalReason } from './signIn';

const INTERVAL_MILLIS = 2_000;
const UNAUTHORIZED = 401;
// Like the page that ends the sign-in; see api/templates/signed_in.html.
const CHANNEL = 'bai-sign-in';

// Open also while the user is signed in: this page may notice the sign-in before the message.
const signIns = new BroadcastChannel(CHANNEL);
signIns.onmessage = () => {
  // The window with the sign-in closes itself when it receives an answer.
  signIns.postMessage('received');
  if (currentConnection().state === 'signed-out') {
    void checkSignIn();
  }
};

/** Address of the Hub's sign-in, which ends on a page that notifies the current page. */
export const signInAddress = `${config.base}/signed-in`;

/** While the user is signed out, find out whether the user has signed in again in another window. */
export function useSignInCheck(): void {
  useEffect(() => {
    const checkIfVisible = () => {
      if (!document.hidden) {
        void checkSignIn();
      }
    };
    const timer = window.setInterval(checkIfVisible, INTERVAL_MILLIS);
    document.addEventListener('visibilitychange', checkIfVisible);
    return () => {
      window.clearInterval(timer);
      document.removeEventListener('visibilitychange', checkIfVisible);
    };
  }, []);
}

async function checkSignIn(): Promise<void> {
  const response = await fetch(`${config.api}/me`).catch(() => undefined);
  if (response?.ok) {
    requirePageUser((await response.json()) as Me);
    reportSignIn();
    // Read all data again, because the page has missed the changes that were made meanwhile.
    await queries.invalidateQueries({ predicate: isNoFileContent });
  } else if (response?.status === UNAUTHORIZED) {
    reportSignOut(await refusalReason(response));
  }
}
