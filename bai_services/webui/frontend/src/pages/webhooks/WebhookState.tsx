import { useTranslation } from 'react-i18next';
import { Tag } from '../../components/Tag';
import type { Item } from '../../data/entities';

/** Whether a webhook is called: enabled, disabled, suspended or failing. */
export function WebhookState({ webhook }: { webhook: Item }) {
  const { t } = useTranslation();
  const state = stateOf(webhook);
  const colors = {
    enabled: 'green',
    disabled: undefined,
    suspended: 'red',
    failing: 'orange'
  } as const;
  return <Tag color={colors[state]}>{t(`webhooks.state-${state}`)}</Tag>;
}

function stateOf(webhook: Item) {
  if (webhook['is_enabled'] !== true) {
    return 'disabled';
  }
  if (webhook['suspended_at'] !== null) {
    return 'suspended';
  }
  return Number(webhook['failures']) > 0 ? 'failing' : 'enabled';
}
