import i18next from 'i18next';
import { formatSeconds } from '../../components/time';
import type { Item } from '../../data/entities';

/** One readable text for each stored scheduler option of a resource group. */
export const optionTexts = (options: Item): string[] =>
  Object.entries(options).flatMap(([key, value]) =>
    key === 'fair_share' ? fairShareTexts(value as Item) : [optionText(key, value)]
  );

function optionText(key: string, value: unknown): string {
  switch (key) {
    case 'preemption':
      // The drawer shows the details of preemption.
      return labelled(i18next.t('preemptions.title'), onOff((value as Item)['enabled'] === true));
    case 'lost_agents': {
      const seconds = (value as Item)['requeue_after'];
      const label = i18next.t('resource-groups.lost-agents-requeue-after');
      // The drawer also shows for how long other sessions wait.
      return labelled(label, timeoutText(Number(seconds ?? 600)));
    }
    case 'provisioning': {
      // The drawer shows the other limits.
      const maximum = Number((value as Item)['maximum'] ?? 0);
      const text = maximum === 0 ? onOff(false) : maximum.toLocaleString(i18next.language);
      return labelled(i18next.t('resource-groups.provisioning-maximum'), text);
    }
    case 'pending_timeout':
      return labelled(optionLabel(key), timeoutText(Number(value)));
    default:
      return labelled(optionLabel(key), typeof value === 'boolean' ? onOff(value) : String(value));
  }
}

const timeoutText = (seconds: number) =>
  seconds === 0 ? onOff(false) : formatSeconds(seconds, i18next.language);

function fairShareTexts(parts: Item): string[] {
  const title = i18next.t('resource-groups.option-fair-share');
  return Object.entries(parts).map(([key, value]) =>
    labelled(`${title}, ${optionLabel(key)}`, numbersText(value))
  );
}

/** Format a number, or a map from names to numbers or to such maps: `domain a=2, user b=3`. */
function numbersText(value: unknown): string {
  if (typeof value !== 'object' || value === null) {
    return Number(value).toLocaleString(i18next.language);
  }
  const texts = Object.entries(value).flatMap(([name, part]: [string, unknown]) =>
    typeof part === 'object' && part !== null
      ? Object.entries(part).map(([of, n]) => `${name} ${of}=${numbersText(n)}`)
      : [`${name}=${numbersText(part)}`]
  );
  return texts.join(', ') || '–';
}

function optionLabel(key: string): string {
  const name = `resource-groups.option-${key.replaceAll('_', '-')}`;
  return i18next.exists(name) ? i18next.t(name) : key;
}

const labelled = (label: string, text: string) => `${label}: ${text}`;
const onOff = (isOn: boolean) =>
  i18next.t(isOn ? 'resource-groups.option-on' : 'resource-groups.option-off');
