import { config } from '../config';
import { masked } from './masked';

/** A name or an e-mail address as the installation shows it: unchanged, or masked. */
export const personal = (text: string) => (config.masksUsers && text ? masked(text) : text);

/** The keys of columns with names or e-mail addresses of users. */
export const PERSONAL: ReadonlySet<string> = new Set(['full_name', 'email', 'owner', 'actor']);
