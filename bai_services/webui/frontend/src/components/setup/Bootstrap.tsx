import { App, Button, Card, Flex, Form, Input, InputNumber, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import {
  bootstrapQuery,
  useRemoveBootstrap,
  useSetBootstrap,
  type BootstrapScript
} from '../../data/sessions/setups';
import { ErrorNotice } from '../ErrorNotice';
import { RemoveButton } from './RemoveButton';
import type { SetupProps } from './SessionSetup';

const DEFAULT_SECONDS = 120;
const MAX_SECONDS = 300;

/** The script that runs before a new session becomes RUNNING. */
export function Bootstrap(props: SetupProps) {
  const { t } = useTranslation();
  const found = useQuery(bootstrapQuery(props.project));
  return (
    <Card size="small" title={t('setup.bootstrap')} style={{ marginBottom: 16 }}>
      {found.isPending && <Skeleton active paragraph={{ rows: 4 }} title={false} />}
      {found.error && <ErrorNotice error={found.error} onRetry={() => void found.refetch()} />}
      {found.data && (
        <EditScript
          key={found.data.bootstrap?.changed_at ?? ''}
          {...props}
          bootstrap={found.data.bootstrap}
        />
      )}
    </Card>
  );
}

function EditScript({
  project,
  isWritable,
  bootstrap
}: SetupProps & { bootstrap: BootstrapScript | null }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const set = useSetBootstrap(project);
  const remove = useRemoveBootstrap(project);
  return (
    <Form
      name="bootstrap"
      layout="vertical"
      disabled={!isWritable}
      initialValues={{
        script: bootstrap?.script ?? '',
        timeout_seconds: bootstrap?.timeout_seconds ?? DEFAULT_SECONDS
      }}
      onFinish={(values: Pick<BootstrapScript, 'script' | 'timeout_seconds'>) =>
        set.mutate(values, { onSuccess: () => void message.success(t('setup.script-saved')) })
      }
    >
      <Form.Item
        name="script"
        label={t('setup.script')}
        extra={t('setup.script-help')}
        rules={[{ required: true, whitespace: true, message: t('setup.script-missing') }]}
      >
        <Input.TextArea
          autoSize={{ minRows: 4, maxRows: 20 }}
          spellCheck={false}
          style={{ fontFamily: 'monospace' }}
        />
      </Form.Item>
      <Form.Item name="timeout_seconds" label={t('setup.time-limit')}>
        <InputNumber min={1} max={MAX_SECONDS} precision={0} />
      </Form.Item>
      {set.error && <ErrorNotice error={set.error} />}
      {isWritable && (
        <Flex gap="small" align="center">
          <Button type="primary" htmlType="submit" loading={set.isPending}>
            {t('setup.save')}
          </Button>
          {bootstrap && (
            <RemoveButton
              name={t('setup.bootstrap')}
              onRemove={() =>
                remove.mutate(undefined, {
                  onError: error => void message.error(error.message)
                })
              }
            />
          )}
        </Flex>
      )}
    </Form>
  );
}
