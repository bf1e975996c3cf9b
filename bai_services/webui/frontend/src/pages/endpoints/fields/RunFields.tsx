import { Alert, Form, Input, InputNumber, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { variantsQuery, type Variant } from '../../../data/serving/endpoints';
import { textToVariables } from '../form';
import { DefinitionField } from './DefinitionField';
import { ImageField } from './ImageField';

/** What the replicas run: variant, image, command or model definition, and variables. */
export function RunFields() {
  const { t } = useTranslation();
  const form = Form.useFormInstance();
  const variants = useQuery(variantsQuery);
  const chosen = Form.useWatch<string | undefined>('variant');
  const variant = variants.data?.find(({ name }) => name === chosen);
  // Reset the command, the port and the health check: those of the previous variant do not apply.
  const forget = () =>
    form.setFieldsValue({
      command: '',
      port: null,
      protocol: null,
      health: { path: '', start_seconds: null }
    });
  return (
    <>
      {variants.error && (
        <ErrorNotice error={variants.error} onRetry={() => void variants.refetch()} />
      )}
      <Form.Item name="variant" label={t('endpoints.variant')}>
        <Select
          loading={variants.isPending}
          onChange={forget}
          options={(variants.data ?? []).map(({ name, title }) => ({
            value: name,
            label: t(`endpoints.variant-${name}`, title)
          }))}
        />
      </Form.Item>
      {variant?.is_tested === false && (
        <Alert type="info" showIcon title={t('endpoints.untested')} style={{ marginBottom: 16 }} />
      )}
      <ImageField />
      {variant?.uses_definition && <DefinitionField />}
      <CommandFields variant={variant} />
      <Form.Item
        name="environ"
        label={t('endpoints.environ')}
        extra={t('endpoints.environ-help')}
        rules={[
          {
            validator: (_: unknown, text?: string | null) =>
              textToVariables(text ?? '') === undefined
                ? Promise.reject(new Error(t('endpoints.environ-invalid')))
                : Promise.resolve()
          }
        ]}
      >
        <Input.TextArea autoSize={{ minRows: 1, maxRows: 8 }} spellCheck={false} />
      </Form.Item>
    </>
  );
}

/** The command, or the arguments of the variant's command. */
function CommandFields({ variant }: { variant: Variant | undefined }) {
  const { t } = useTranslation();
  const command = Form.useWatch<string | undefined>('command');
  const isOptional = variant === undefined || variant.command !== '' || variant.uses_definition;
  return (
    <>
      <Form.Item
        name="command"
        label={t('endpoints.command')}
        extra={
          variant?.command ? (
            <>
              {t('endpoints.command-default')} <code>{variant.command}</code>
            </>
          ) : (
            t('endpoints.command-help')
          )
        }
        rules={isOptional ? [] : [{ required: true, message: t('entities.required') }]}
      >
        <Input.TextArea autoSize={{ minRows: 2, maxRows: 8 }} spellCheck={false} />
      </Form.Item>
      {!command &&
        variant?.arguments.map(({ option, kind, description }) => (
          <Form.Item
            key={option}
            name={['arguments', option]}
            label={t(`endpoint-arguments.${option.replace(/^-+/, '')}`, description)}
            extra={<code>{option}</code>}
          >
            {kind === 'number' ? <InputNumber /> : <Input autoComplete="off" spellCheck={false} />}
          </Form.Item>
        ))}
      <Form.Item name="port" label={t('endpoints.port')} extra={t('endpoints.port-help')}>
        <InputNumber
          min={2}
          max={65535}
          precision={0}
          placeholder={variant === undefined ? '' : String(variant.port)}
        />
      </Form.Item>
      <Form.Item
        name="protocol"
        label={t('endpoints.protocol')}
        extra={t('endpoints.protocol-help')}
      >
        <Select
          allowClear
          placeholder="HTTP"
          options={[
            { value: 'http', label: 'HTTP' },
            { value: 'grpc', label: 'gRPC' }
          ]}
        />
      </Form.Item>
    </>
  );
}
