import { Alert, Button, Form, Input } from 'antd';
import { useTranslation } from 'react-i18next';
import { useCheckDefinition } from '../../../data/serving/endpoints';

/** The text of a model definition, which the manager can check. */
export function DefinitionField() {
  const { t } = useTranslation();
  const form = Form.useFormInstance();
  const check = useCheckDefinition();
  const text = Form.useWatch<string | undefined>('definition');
  const start = () =>
    check.mutate(String(form.getFieldValue('definition')), {
      onError: ({ message }) => form.setFields([{ name: 'definition', errors: [message] }]),
      onSuccess: () => form.setFields([{ name: 'definition', errors: [] }])
    });
  return (
    <>
      <Form.Item
        name="definition"
        label={t('endpoints.definition')}
        extra={t('endpoints.definition-help')}
      >
        <Input.TextArea
          autoSize={{ minRows: 6, maxRows: 20 }}
          spellCheck={false}
          style={{ fontFamily: 'monospace' }}
          onChange={() => check.reset()}
        />
      </Form.Item>
      <Button
        size="small"
        disabled={!text?.trim()}
        loading={check.isPending}
        onClick={start}
        style={{ marginBottom: 16 }}
      >
        {t('endpoints.check-definition')}
      </Button>
      {check.data && (
        <Alert
          type="success"
          showIcon
          role="status"
          title={t('endpoints.definition-valid')}
          description={<code>{check.data.command}</code>}
          style={{ marginBottom: 16 }}
        />
      )}
    </>
  );
}
