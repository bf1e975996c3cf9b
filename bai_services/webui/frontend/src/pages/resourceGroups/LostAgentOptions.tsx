import { Form, Input } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds } from '../../components/time';
import type { Item } from '../../data/entities';
import { OptionFacts, OptionsSection, optionValues } from './OptionsSection';

const DEFAULTS = { requeue_after: 600, wait: 3600 };

interface LostAgentOptionsProps {
  group: Item;
  isWriter: boolean;
}

/** When batch sessions of a lost agent start elsewhere, and how long other sessions wait for it. */
export function LostAgentOptions({ group, isWriter }: LostAgentOptionsProps) {
  const { t, i18n } = useTranslation();
  const values = optionValues(group, 'lost_agents', DEFAULTS);
  const requeue =
    values.requeue_after === 0
      ? t('resource-groups.lost-agents-never')
      : formatSeconds(values.requeue_after, i18n.language);
  return (
    <OptionsSection
      group={group}
      isWriter={isWriter}
      option="lost_agents"
      title={t('resource-groups.lost-agents')}
      editLabel={t('resource-groups.lost-agents-edit')}
      values={values}
      facts={
        <OptionFacts
          values={{
            [t('resource-groups.lost-agents-requeue-after')]: requeue,
            [t('resource-groups.lost-agents-wait')]: formatSeconds(values.wait, i18n.language)
          }}
        />
      }
    >
      <Form.Item
        name="requeue_after"
        rules={[{ required: true }]}
        label={t('resource-groups.lost-agents-requeue-after')}
        extra={t('resource-groups.lost-agents-requeue-after-help')}
      >
        <Input />
      </Form.Item>
      <Form.Item
        name="wait"
        rules={[{ required: true }]}
        label={t('resource-groups.lost-agents-wait')}
        extra={t('preemptions.duration-help')}
      >
        <Input />
      </Form.Item>
    </OptionsSection>
  );
}
