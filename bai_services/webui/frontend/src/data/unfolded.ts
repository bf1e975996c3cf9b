import { Stored } from './stored';

const MAX_CHOICES = 50;

type Choice = readonly [key: string, isUnfolded: boolean];

const isChoice = (value: unknown): value is Choice =>
  Array.isArray(value) && typeof value[0] === 'string' && typeof value[1] === 'boolean';

export const readChoices = (stored: unknown): readonly Choice[] =>
  Array.isArray(stored) ? stored.filter(isChoice).slice(0, MAX_CHOICES) : [];

/** Put a choice at the front; drop the oldest choices beyond `MAX_CHOICES`. */
export const withChoice = (
  choices: readonly Choice[],
  key: string,
  isUnfolded: boolean
): readonly Choice[] =>
  [[key, isUnfolded] as const, ...choices.filter(([other]) => other !== key)].slice(0, MAX_CHOICES);

/** Which banners the user has folded or unfolded, by their keys. */
export const unfoldedBanners = new Stored('bai-unfolded-banners', readChoices);
