import { Button, Card, Flex, Form, Input, InputNumber, Select } from 'antd';
import { useTranslation } from 'react-i18next';
import { DAYS, dayName, type PeriodValues } from './rule';

// MAX_PERIODS in core/serving/autoscaling.py.
const MAX_PERIODS = 20;
const TIME = /^([01]?\d|2[0-3]):[0-5]\d$/;

interface PeriodFieldsProps {
  least: number;
  most: number;
}

/** Periods of the week in which other bounds apply. */
export function PeriodFields({ least, most }: PeriodFieldsProps) {
  const { t, i18n } = useTranslation();
  const required = [{ required: true, message: t('entities.required') }];
  const time = [{ pattern: TIME, required: true, message: t('endpoint-scaling.time-invalid') }];
  const label = (key: string) => t(`endpoint-scaling.${key}`);
  const first: PeriodValues = {
    days: DAYS.slice(0, 5),
    starts: '08:00',
    ends: '20:00',
    zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    min_replicas: Math.max(1, least),
    max_replicas: 2
  };
  return (
    <Form.List name="schedule">
      {(fields, { add, remove }) => (
        <>
          {fields.map(({ key, name }) => (
            <Card key={key} size="small" style={{ marginBottom: 12 }}>
              <Form.Item name={[name, 'days']} label={label('days')} rules={required}>
                <Select
                  mode="multiple"
                  options={DAYS.map(value => ({ value, label: dayName(value, i18n.language) }))}
                />
              </Form.Item>
              <Flex wrap gap="small">
                <Form.Item name={[name, 'starts']} label={label('starts')} rules={time}>
                  <Input style={{ width: 90 }} maxLength={5} />
                </Form.Item>
                <Form.Item name={[name, 'ends']} label={label('ends')} rules={time}>
                  <Input style={{ width: 90 }} maxLength={5} />
                </Form.Item>
                <Form.Item name={[name, 'zone']} label={label('zone')} rules={required}>
                  <Input style={{ width: 180 }} maxLength={64} />
                </Form.Item>
              </Flex>
              <Flex wrap gap="small" align="end">
                <Form.Item name={[name, 'min_replicas']} label={label('min')} rules={required}>
                  <InputNumber min={least} max={most} precision={0} />
                </Form.Item>
                <Form.Item name={[name, 'max_replicas']} label={label('max')} rules={required}>
                  <InputNumber min={1} max={most} precision={0} />
                </Form.Item>
                <Form.Item>
                  <Button danger onClick={() => remove(name)}>
                    {label('remove-period')}
                  </Button>
                </Form.Item>
              </Flex>
            </Card>
          ))}
          {fields.length < MAX_PERIODS && (
            <Button onClick={() => add(first)}>{label('add-period')}</Button>
          )}
        </>
      )}
    </Form.List>
  );
}
