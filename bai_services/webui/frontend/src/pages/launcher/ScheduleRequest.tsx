import { App, AutoComplete, Form, Input, Modal, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSaveEntity } from '../../data/entities';
import { timeZone } from '../../data/usage/reports';
import { requestOf, withoutSecrets, type LaunchForm } from './form';

interface Times {
  name: string;
  start: string;
  stop?: string;
  time_zone: string;
}

const START = 'mon-fri 08:00';
const STOP = 'mon-fri 19:00';
const suggestions = (...rules: string[]) => rules.map(value => ({ value }));

/** Dialog that creates a schedule of sessions with the values of the launcher. */
export function ScheduleRequest(props: { form: LaunchForm; isOpen: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<Times>();
  const save = useSaveEntity('/schedules');
  const submit = ({ stop, ...times }: Times) => {
    const request = withoutSecrets(requestOf({ ...props.form, name: '' }));
    save.mutate(
      { values: { ...times, request, ...(stop ? { stop } : {}) } },
      {
        onSuccess: () => {
          void message.success(t('schedules.created', { name: times.name }));
          props.onClose();
        }
      }
    );
  };
  return (
    <Modal
      open={props.isOpen}
      onCancel={props.onClose}
      onOk={form.submit}
      confirmLoading={save.isPending}
      title={t('schedules.create')}
      destroyOnHidden
    >
      <p>{t('schedules.rule-help')}</p>
      <Form
        form={form}
        layout="vertical"
        initialValues={{ name: props.form.name, start: START, stop: STOP, time_zone: timeZone() }}
        onFinish={submit}
      >
        <Form.Item
          name="name"
          label={t('schedules.name')}
          rules={[{ required: true, message: t('entities.required') }]}
        >
          <Input autoFocus />
        </Form.Item>
        <Form.Item
          name="start"
          label={t('schedules.start')}
          rules={[{ required: true, message: t('entities.required') }]}
        >
          <AutoComplete options={suggestions(START, 'daily 09:00', '0 8 * * 1-5')} />
        </Form.Item>
        <Form.Item name="stop" label={t('schedules.stop')}>
          <AutoComplete allowClear options={suggestions(STOP, 'daily 18:00')} />
        </Form.Item>
        <Form.Item
          name="time_zone"
          label={t('schedules.time-zone')}
          rules={[{ required: true, message: t('entities.required') }]}
        >
          <Input />
        </Form.Item>
      </Form>
      {save.error && (
        <Typography.Text type="danger" role="alert">
          {save.error.message}
        </Typography.Text>
      )}
    </Modal>
  );
}
