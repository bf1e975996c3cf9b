import type { NewUser } from './csvUsers';

export const MAX_USERS = 100;
const MAX_SHOWN = 4;

/** Users with numbered names, such as `class01` to `class30` at `example.com`. */
export interface Series {
  prefix: string;
  host: string;
  count: number;
  password?: string;
  need_password_change?: boolean;
  domain?: string;
  resource_policy?: string;
  projects?: string[];
}

export const PREFIX = /^[a-z0-9][a-z0-9._-]{0,29}$/i;
// DNS limits a name to 253 characters.
export const HOST = /^[a-z0-9][a-z0-9.-]{0,252}$/i;

/** Numbered names; the numbers are padded with zeros to the same width. */
export function namesOf({ prefix, count }: Series): string[] {
  const digits = String(count).length;
  return Array.from(
    { length: count },
    (_, index) => prefix + String(index + 1).padStart(digits, '0')
  );
}

/** The addresses of a series. A series longer than `MAX_SHOWN` is abbreviated to the first two,
 * "…" and the last.
 */
export function preview(series: Series): string[] {
  const addresses = namesOf(series).map(name => `${name}@${series.host}`);
  const last = addresses.at(-1);
  return addresses.length <= MAX_SHOWN || last === undefined
    ? addresses
    : [...addresses.slice(0, 2), '…', last];
}

/** The requests that create the users; empty fields keep the server's defaults. */
export function usersOf(series: Series): NewUser[] {
  const { password, domain, resource_policy, projects = [] } = series;
  const shared = {
    need_password_change: series.need_password_change ?? false,
    ...(password ? { password } : {}),
    ...(domain ? { domain } : {}),
    ...(resource_policy ? { resource_policy } : {}),
    ...(projects.length > 0 ? { projects } : {})
  };
  return namesOf(series).map(
    username => ({ username, email: `${username}@${series.host}`, ...shared }) as NewUser
  );
}
