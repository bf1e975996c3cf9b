import { currentPreferences } from '../../data/accounts/preferences';

/** Show a notice of the operating system if the page is hidden and the user has chosen so. */
export function showOnDesktop(title: string, body: string, tag: string): void {
  if (document.hidden && currentPreferences().hasDesktopNotices && 'Notification' in window) {
    new Notification(title, { body, tag });
  }
}
