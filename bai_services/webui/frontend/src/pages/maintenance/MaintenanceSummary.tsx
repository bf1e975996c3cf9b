import { Alert, Form } from 'antd';
import type { Dayjs } from 'dayjs';
import { useTranslation } from 'react-i18next';
import { formatTime } from '../../components/time';

interface Values {
  mode?: string;
  starts_at?: Dayjs | null;
  ends_at?: Dayjs | null;
}

/** What the entered maintenance does, and when: below the form of a new maintenance. */
export function MaintenanceSummary() {
  const { t, i18n } = useTranslation();
  const form = Form.useFormInstance<Values>();
  const mode = Form.useWatch('mode', form) ?? 'drain';
  const start = Form.useWatch('starts_at', form);
  const end = Form.useWatch('ends_at', form);
  const time = (at: Dayjs) => formatTime(at.toISOString(), i18n.language);
  const key = ['summary', !start && 'now', !end && 'open'].filter(Boolean).join('-');
  return (
    <Alert
      type="info"
      showIcon
      title={t(`maintenances.${key}`, {
        start: start && time(start),
        end: end && time(end)
      })}
      description={t(`maintenances.effect-${mode}`)}
    />
  );
}
