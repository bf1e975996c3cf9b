import { readLauncherSearch, type LauncherSearch } from '../launcher/search';

/** Return the request in a link to the launcher of this hub; undefined for any other link. */
export function requestInLink(
  link: string,
  origin: string,
  base: string,
  parse: (text: string) => unknown
): LauncherSearch | undefined {
  if (!URL.canParse(link.trim(), origin)) {
    return undefined;
  }
  const url = new URL(link.trim(), origin);
  if (url.origin !== origin || url.pathname.replace(/\/$/, '') !== `${base}/launch`) {
    return undefined;
  }
  const search = readLauncherSearch((parse(url.search) ?? {}) as Record<string, unknown>);
  return search.request ? search : undefined;
}
