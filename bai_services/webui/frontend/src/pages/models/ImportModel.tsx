import { useState } from 'react';
import { Alert, Form, Input, Modal, Segmented, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { meQuery } from '../../data/accounts/me';
import { ApiError } from '../../data/client';
import { useImportModel, type NewModelImport } from '../../data/serving/models';

const KINDS = ['huggingface', 'url'] as const;
type Kind = (typeof KINDS)[number];

interface ImportValues {
  repository?: string;
  revision?: string;
  patterns?: string;
  url?: string;
  sha256?: string;
  project?: string;
  folder?: string;
}

interface ImportModelProps {
  stores: readonly { id: string; name: string; domain: string }[];
  onClose: () => void;
  onDone: () => void;
}

/** Dialog that imports a model of a hub, or a file from a URL. */
export function ImportModel({ stores, onClose, onDone }: ImportModelProps) {
  const { t } = useTranslation();
  const [kind, setKind] = useState<Kind>('huggingface');
  const [form] = Form.useForm<ImportValues>();
  const { data: me } = useQuery(meQuery);
  const create = useImportModel();
  const problems = create.error instanceof ApiError ? create.error.problems : [];
  const item = (name: keyof ImportValues, isRequired = false) => {
    const problem = problems.find(({ field }) => field === (name === 'folder' ? 'name' : name));
    return {
      name,
      label: t(`model-imports.${name}`),
      rules: isRequired ? [{ required: true, message: t('entities.required') }] : [],
      ...(problem ? { validateStatus: 'error' as const, help: problem.problem } : {})
    };
  };
  const submit = ({ patterns, ...values }: ImportValues) => {
    const words = patterns?.split(/\s+/).filter(word => word !== '') ?? [];
    const given = Object.entries(values as Record<string, string | undefined>).filter(([, value]) =>
      Boolean(value?.trim())
    );
    const body: NewModelImport = Object.fromEntries(given);
    create.mutate(words.length > 0 ? { ...body, patterns: words } : body, { onSuccess: onDone });
  };
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('models.import')}
      okText={t('models.import')}
      cancelText={t('entities.cancel')}
      onOk={form.submit}
      confirmLoading={create.isPending}
    >
      {me?.role === 'user' && (
        <Alert type="info" showIcon title={t('model-imports.needs-approval')} />
      )}
      <Segmented
        value={kind}
        onChange={setKind}
        aria-label={t('model-imports.kind')}
        options={KINDS.map(value => ({ value, label: t(`model-imports.kind-${value}`) }))}
        style={{ margin: '12px 0' }}
      />
      {create.error && problems.length === 0 && <ErrorNotice error={create.error} />}
      <Form
        key={kind}
        form={form}
        layout="vertical"
        initialValues={{ project: stores.length === 1 ? stores[0]?.id : undefined }}
        preserve={false}
        onFinish={submit}
      >
        {kind === 'huggingface' ? (
          <>
            <Form.Item {...item('repository', true)} extra={t('model-imports.repository-help')}>
              <Input autoFocus autoComplete="off" spellCheck={false} />
            </Form.Item>
            <Form.Item {...item('revision')}>
              <Input autoComplete="off" spellCheck={false} placeholder="main" />
            </Form.Item>
            <Form.Item {...item('patterns')} extra={t('model-imports.patterns-help')}>
              <Input autoComplete="off" spellCheck={false} />
            </Form.Item>
          </>
        ) : (
          <>
            <Form.Item {...item('url', true)}>
              <Input autoFocus autoComplete="off" spellCheck={false} />
            </Form.Item>
            <Form.Item {...item('sha256')} extra={t('model-imports.sha256-help')}>
              <Input autoComplete="off" spellCheck={false} />
            </Form.Item>
          </>
        )}
        <Form.Item {...item('project', true)} hidden={stores.length === 1}>
          <Select
            options={stores.map(({ id, name, domain }) => ({
              value: id,
              label: `${domain}/${name}`
            }))}
          />
        </Form.Item>
        <Form.Item {...item('folder')} extra={t('model-imports.folder-help')}>
          <Input autoComplete="off" spellCheck={false} />
        </Form.Item>
      </Form>
    </Modal>
  );
}
