/** Formatting of quantities, times and coded texts for users. */

import type { Translate } from './i18n';
import type { CodedText, EndRule, IdleCheck } from './types';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const SUFFIXES = 'kmgtpe';

/** 1536 -> "1.5 KiB" */
export function bytes(count: number): string {
  let value = Math.max(0, count);
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = value < 10 && unit > 0 ? 1 : 0;
  return `${trimmed(value.toFixed(digits))} ${UNITS[unit] ?? ''}`;
}

/** The text for a usage in the unit of its limit, and the text for the limit: ["1.2", "4 GiB"] */
export function usedOf(used: number, limit: number): [string, string] {
  const shown = bytes(limit);
  const unit = 1024 ** UNITS.indexOf(shown.split(' ')[1] ?? 'B');
  const value = Math.max(0, used) / unit;
  return [trimmed(value.toFixed(value < 0.1 ? 2 : value < 100 ? 1 : 0)), shown];
}

const FRACTIONS: Record<string, string> = { '0.25': '¼', '0.5': '½', '0.75': '¾' };

/** Text for the share of a device: "0.25" -> "¼", "0.3" -> "0.3" */
export function fraction(share: string): string {
  return FRACTIONS[trimmed(share)] ?? trimmed(share);
}

/** Parse an amount of memory from the API: "1.5g" -> 1610612736; NaN if the text is invalid. */
export function parseAmount(text: string): number {
  const match = /^(\d+(?:\.\d+)?)([kmgtpe]?)$/i.exec(text.trim());
  if (!match) {
    return NaN;
  }
  const power = SUFFIXES.indexOf((match[2] ?? '').toLowerCase()) + 1;
  return Number(match[1]) * (match[2] ? 1024 ** power : 1);
}

/** Text for an amount of a resource slot: ("mem", "2g") -> "2 GiB", ("cpu", "1") -> "1" */
export function amount(slot: string, text: string): string {
  const value = slot === 'mem' ? parseAmount(text) : NaN;
  return Number.isNaN(value) ? text : bytes(value);
}

/** 3725 seconds -> "1:02:05" */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const days = Math.floor(whole / 86400);
  const parts = [Math.floor((whole % 86400) / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const clock = parts.map((part, i) => (i === 0 ? String(part) : String(part).padStart(2, '0')));
  return (days ? `${days}d ` : '') + clock.join(':');
}

/** Replace the timestamps in a text by local times. */
export function inLocalTime(text: string): string {
  return text.replace(/\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g, time =>
    new Date(time).toLocaleString()
  );
}

/** The local time of a moment: without the date if it is today. */
export function clockTime(time: string, now = new Date()): string {
  const at = new Date(time);
  return at.toDateString() === now.toDateString() ? at.toLocaleTimeString() : at.toLocaleString();
}

/** 0.251 -> "0.25", 12.4 -> "12" */
export function cores(count: number): string {
  return trimmed(count.toFixed(count < 10 ? 2 : 0));
}

function trimmed(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

// `{name}`, or `{parts:SEPARATOR}`
const PLACEHOLDER = /\{(\w+)(?::([^}]*))?\}/g;

/**
 * Return a text of the manager in the user's language. The result is the English message if
 * there is no code, the catalogue has no text for it, or a value is missing.
 */
export const reasonText = (t: Translate, message: string, coded: CodedText | null): string =>
  (coded && translated(t, coded)) ?? inLocalTime(message);

function translated(t: Translate, { code, values, parts }: CodedText): string | undefined {
  const key = `reasons.${code}`;
  const template = t(key);
  const translatedParts = parts.map(part => translated(t, part));
  let isComplete = template !== key && !translatedParts.includes(undefined);
  const text = template.replace(PLACEHOLDER, (_, name: string, separator = '') => {
    if (name === 'parts') {
      return translatedParts.join(separator as string);
    }
    const value = values[name];
    isComplete &&= value !== undefined;
    return value === undefined ? '' : valueText(t, name, value);
  });
  return isComplete ? text : undefined;
}

function valueText(t: Translate, name: string, value: string | number): string {
  if (name.endsWith('_seconds')) {
    return duration(Number(value));
  }
  if (name.endsWith('_at')) {
    return inLocalTime(String(value));
  }
  return name === 'status' ? t(String(value)) : String(value);
}

/** The text `key` with the time until a stop; when the stop is due, that it happens now. */
export const countdownText = (
  t: Translate,
  key: string,
  left: number,
  values: Record<string, string> = {}
): string => (left < 1 ? t('stopping-now') : t(key, { time: duration(left), ...values }));

/** How close an idle checker is to the stop of the session, and when it warns first. */
export function idleRuleState(t: Translate, check: IdleCheck, now = Date.now()): string {
  const seconds = (time: string): number => (Date.parse(time) - now) / 1000;
  const { earliest_end_at: end, earliest_warning_at: warning, status } = check;
  if (end && status !== 'excluded') {
    const isLifetime = check.type === 'session-lifetime';
    const key = isLifetime ? 'idle-rule-lifetime' : 'idle-rule-expected';
    const left = countdownText(t, key, seconds(end));
    return warning && seconds(warning) > 0
      ? `${left} ${t('idle-rule-warning', { time: duration(seconds(warning)) })}`
      : left;
  }
  return t(RULE_STATES[status] ?? 'idle-rule-unjudged');
}

const RULE_STATES: Readonly<Record<string, string>> = {
  active: 'idle-rule-in-use',
  excluded: 'idle-rule-excluded',
  idle: 'idle-rule-pressure'
};

/**
 * Two texts: the time at which an idle checker stops the session, in `left` seconds, and the
 * checker's rule with its window and values.
 */
export function idleCheckTexts(t: Translate, check: IdleCheck, left: number): [string, string] {
  const isLifetime = check.type === 'session-lifetime';
  const end = countdownText(
    t,
    isLifetime ? 'lifetime-check-stops-in' : 'idle-check-stops-in',
    left,
    { at: inLocalTime(check.ends_at ?? '') }
  );
  return [end, reasonText(t, check.reason, check.coded)];
}

/**
 * The text of a notification about an idle checker. It has the time of the stop and no countdown,
 * because JupyterLab opens a closed notification again when its text changes.
 */
export const idleCheckNotification = (t: Translate, check: IdleCheck): string =>
  t(check.type === 'session-lifetime' ? 'lifetime-check-stops-at' : 'idle-check-stops-at', {
    time: clockTime(check.ends_at ?? ''),
    rule: reasonText(t, check.reason, check.coded)
  });

/** Two texts: the time at which a rule stops the session, in `left` seconds, and the rule. */
export const endRuleTexts = (t: Translate, rule: EndRule, left: number): [string, string] => [
  countdownText(t, 'lifetime-check-stops-in', left, { at: inLocalTime(rule.ends_at) }),
  reasonText(t, rule.reason, rule.coded)
];

/** The text of a notification about a rule that stops the session. */
export const endRuleNotification = (t: Translate, rule: EndRule): string =>
  t('lifetime-check-stops-at', {
    time: clockTime(rule.ends_at),
    rule: reasonText(t, rule.reason, rule.coded)
  });

/** Two texts: the session has ended, and why, or where the user finds the reason. */
export const endedTexts = (
  t: Translate,
  reason: Pick<EndRule, 'reason' | 'coded'> | null
): [string, string] => [
  t('problem-ended'),
  reason ? reasonText(t, reason.reason, reason.coded) : t('reason-on-page')
];
