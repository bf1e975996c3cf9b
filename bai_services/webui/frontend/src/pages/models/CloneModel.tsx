import { useState } from 'react';
import { Alert, Form, Input, Modal, Progress } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { UserText } from '../../components/UserText';
import { cloneQuery, useCloneModel, type ModelCard } from '../../data/serving/models';

interface CloneModelProps {
  model: ModelCard;
  onClose: () => void;
}

/** Dialog that clones a model to a folder of the user, and then shows the progress. */
export function CloneModel({ model, onClose }: CloneModelProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<{ name: string }>();
  const [folder, setFolder] = useState<string>();
  const clone = useCloneModel(model.id);
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('models.clone-title', { name: model.title })}
      okText={t(folder === undefined ? 'models.clone' : 'models.close')}
      cancelText={t('entities.cancel')}
      onOk={folder === undefined ? form.submit : onClose}
      confirmLoading={clone.isPending}
    >
      {folder !== undefined && <CloneProgress id={folder} />}
      <Form
        form={form}
        layout="vertical"
        hidden={folder !== undefined}
        initialValues={{ name: model.folder }}
        onFinish={({ name }) => clone.mutate({ name }, { onSuccess: ({ id }) => setFolder(id) })}
      >
        <Form.Item
          name="name"
          label={t('models.clone-name')}
          rules={[{ required: true, message: t('entities.required') }]}
          {...(clone.error ? { validateStatus: 'error' as const, help: clone.error.message } : {})}
        >
          <Input autoFocus autoComplete="off" spellCheck={false} />
        </Form.Item>
      </Form>
    </Modal>
  );
}

function CloneProgress({ id }: { id: string }) {
  const { t } = useTranslation();
  const { data: folder, error } = useQuery(cloneQuery(id));
  if (error) {
    return <ErrorNotice error={error} />;
  }
  if (folder?.status === 'error') {
    return <Alert type="error" showIcon title={folder.status_info} />;
  }
  const isDone = folder !== undefined && folder.status !== 'cloning';
  const { bytes = 0, total_bytes = 0 } = folder?.task ?? {};
  return (
    <div aria-live="polite">
      <Progress
        percent={isDone ? 100 : Math.floor((100 * bytes) / Math.max(total_bytes, 1))}
        status={isDone ? 'success' : 'active'}
        aria-label={t('models.cloning')}
      />
      {isDone ? (
        <>
          {t('models.cloned')}{' '}
          <Link to="/data" search={{ folder: id }}>
            <UserText text={folder.name} />
          </Link>
        </>
      ) : (
        t('models.cloning')
      )}
    </div>
  );
}
