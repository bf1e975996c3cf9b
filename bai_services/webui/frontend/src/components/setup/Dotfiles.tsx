import { useState } from 'react';
import { App, AutoComplete, Button, Card, Empty, Flex, Form, Input, Modal, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { dotfilesQuery, useRemoveDotfile, useSetDotfile } from '../../data/sessions/setups';
import { formatBytes } from '../bytes';
import { ErrorNotice } from '../ErrorNotice';
import { RemoveButton } from './RemoveButton';
import type { SetupProps } from './SessionSetup';

interface Values {
  path: string;
  permission: string;
  content: string;
}

const NEW: Values = { path: '', permission: '644', content: '' };
const COMMON = ['.bashrc', '.vimrc', '.tmux.conf', '.gitconfig', '.inputrc', '.profile'];
const sizeOf = (text: string) => new TextEncoder().encode(text).length;

/** Files that are copied to the home of new sessions. */
export function Dotfiles({ project, isWritable }: SetupProps) {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const found = useQuery(dotfilesQuery(project));
  const remove = useRemoveDotfile(project);
  const [edited, setEdited] = useState<Values>();
  return (
    <Card size="small" title={t('setup.dotfiles')} style={{ marginBottom: 16 }}>
      {found.isPending && <Skeleton active paragraph={{ rows: 2 }} title={false} />}
      {found.error && <ErrorNotice error={found.error} onRetry={() => void found.refetch()} />}
      {found.data?.items.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('setup.no-dotfiles')} />
      )}
      {found.data?.items.map(({ path, permission, content }) => (
        <Flex
          key={path}
          wrap
          gap="small"
          align="center"
          justify="space-between"
          style={{ marginBottom: 8 }}
        >
          <span style={{ overflowWrap: 'anywhere', flex: '1 1 200px' }}>
            <code>{path}</code> · {permission} · {formatBytes(sizeOf(content), i18n.language)}
          </span>
          <Flex gap="small">
            <Button
              size="small"
              onClick={() => setEdited({ path, permission, content })}
              aria-label={t(isWritable ? 'setup.change-one' : 'setup.show-one', { name: path })}
            >
              {t(isWritable ? 'setup.change' : 'setup.show')}
            </Button>
            {isWritable && (
              <RemoveButton
                name={path}
                onRemove={() =>
                  remove.mutate(path, { onError: error => void message.error(error.message) })
                }
              />
            )}
          </Flex>
        </Flex>
      ))}
      {isWritable && <Button onClick={() => setEdited(NEW)}>{t('setup.add-dotfile')}</Button>}
      {edited && (
        <EditDotfile
          project={project}
          isWritable={isWritable}
          initial={edited}
          onClose={() => setEdited(undefined)}
        />
      )}
    </Card>
  );
}

function EditDotfile({
  project,
  isWritable,
  initial,
  onClose
}: SetupProps & { initial: Values; onClose: () => void }) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Values>();
  const set = useSetDotfile(project);
  const save = async (isClosing: boolean) => {
    const values = await form.validateFields();
    set.mutate(values, { onSuccess: () => isClosing && onClose() });
  };
  return (
    <Modal
      open
      width={720}
      title={initial.path || t('setup.add-dotfile')}
      onCancel={onClose}
      footer={
        isWritable && (
          <Flex wrap gap="small" justify="end">
            <Button onClick={onClose}>{t('setup.cancel')}</Button>
            <Button loading={set.isPending} onClick={() => void save(false)}>
              {t('setup.save')}
            </Button>
            <Button type="primary" loading={set.isPending} onClick={() => void save(true)}>
              {t('setup.save-and-close')}
            </Button>
          </Flex>
        )
      }
    >
      <Form
        form={form}
        name="dotfile"
        layout="vertical"
        initialValues={initial}
        disabled={!isWritable}
      >
        <Form.Item
          name="path"
          label={t('setup.path')}
          extra={t('setup.path-help')}
          rules={[{ required: true, message: t('setup.path-missing') }]}
        >
          <AutoComplete
            disabled={initial.path !== '' || !isWritable}
            options={COMMON.map(value => ({ value }))}
          />
        </Form.Item>
        <Form.Item name="permission" label={t('setup.permission')}>
          <Input maxLength={3} style={{ width: 96 }} />
        </Form.Item>
        <Form.Item name="content" label={t('setup.content')}>
          <Input.TextArea
            autoSize={{ minRows: 8, maxRows: 20 }}
            spellCheck={false}
            style={{ fontFamily: 'monospace' }}
          />
        </Form.Item>
        {set.error && <ErrorNotice error={set.error} />}
      </Form>
    </Modal>
  );
}
