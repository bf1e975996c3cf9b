import { CloseOutlined } from '@ant-design/icons';
import { Button, Flex, Select, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { RULE_NAMES, RULES, type Rule, type TriedRules } from './policies';

interface PolicyFieldsProps {
  number: number;
  policy: TriedRules;
  onChange: (policy: TriedRules) => void;
  onRemove?: () => void;
}

/** The rules of one policy to try; an empty rule stands for the current rule of the group. */
export function PolicyFields({ number, policy, onChange, onRemove }: PolicyFieldsProps) {
  const { t } = useTranslation();
  const label = (rule: Rule, value: string) =>
    rule === 'scheduler' ? t(`resource-groups.scheduler-${value}`) : value;
  return (
    <Flex
      wrap
      gap="small"
      align="center"
      role="group"
      aria-label={t('replays.policy', { number })}
      style={{ marginBottom: 12 }}
    >
      <Typography.Text>{t('replays.policy', { number })}</Typography.Text>
      {RULE_NAMES.map(rule => (
        <Select
          key={rule}
          value={policy[rule]}
          onChange={(value: string) => onChange({ ...policy, [rule]: value })}
          aria-label={t(`replays.${rule}-of`, { number })}
          style={{ minWidth: 190 }}
          options={[
            { value: '', label: t(`replays.${rule}-now`) },
            ...RULES[rule].map(value => ({ value, label: label(rule, value) }))
          ]}
        />
      ))}
      {onRemove && (
        <Button
          type="text"
          icon={<CloseOutlined />}
          onClick={onRemove}
          aria-label={t('replays.remove', { number })}
        />
      )}
    </Flex>
  );
}
