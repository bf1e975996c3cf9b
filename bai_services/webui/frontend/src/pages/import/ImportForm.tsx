import { useEffect, useState } from 'react';
import { Alert, Button, Card, Collapse, Descriptions, Form, Input, Segmented, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { UserText } from '../../components/UserText';
import { ApiError } from '../../data/client';
import { foldersQuery, isWritable } from '../../data/folders/folders';
import { importPreviewQuery, useCreateImport, type ImportPreview } from '../../data/imports';
import { BadgeText } from './BadgeText';

const TARGETS = ['new', 'existing'] as const;
type Target = (typeof TARGETS)[number];
// Debounce interval of the preview.
const PREVIEW_DELAY_MILLIS = 300;
const MAX_FOLDERS = 100;

interface Link {
  repo: string;
  branch: string;
  path: string;
  urlpath: string;
}

interface ImportValues extends Link {
  token: string;
  folder: string;
  into: string;
  directory: string;
}

interface ImportFormProps {
  /** The source in the URL of the page, which can be a link from another site. */
  link: Link;
  onDone: (id: string) => void;
}

/** The form of an import. Nothing is fetched before the user presses the button. */
export function ImportForm({ link, onDone }: ImportFormProps) {
  const { t } = useTranslation();
  const [values, setValues] = useState<ImportValues>({
    ...link,
    token: '',
    folder: '',
    into: '',
    directory: ''
  });
  const [target, setTarget] = useState<Target>('new');
  const { repo, branch, path, urlpath } = values;
  const source = useDelayed(JSON.stringify({ repo: repo.trim(), branch, path }));
  const preview = useQuery(
    importPreviewQuery(JSON.parse(source) as { repo: string; branch: string; path: string })
  );
  const create = useCreateImport();
  const { error } = create.error ? create : preview;
  const problems = error instanceof ApiError ? error.problems : [];
  const isCurrent = source === JSON.stringify({ repo: repo.trim(), branch, path });
  const shown = repo && isCurrent && !preview.error ? preview.data : undefined;
  const item = (name: keyof ImportValues) => {
    const found = problems.find(
      ({ field }) => field === name || (name === 'folder' && field === 'name')
    );
    return {
      label: t(`folder-imports.${name === 'folder' ? 'folder-new' : name}`),
      htmlFor: `import-${name}`,
      ...(found ? { validateStatus: 'error' as const, help: found.problem } : {})
    };
  };
  const input = (name: keyof ImportValues) => ({
    id: `import-${name}`,
    value: values[name],
    autoComplete: 'off',
    spellCheck: false,
    onChange: ({ target: { value } }: { target: { value: string } }) => {
      create.reset();
      setValues(old => ({ ...old, [name]: value }));
    }
  });
  const submit = () => {
    const { into, folder, ...common } = values;
    const where = target === 'new' ? { folder } : { into };
    const given = Object.entries({ ...common, ...where }).filter(([, value]) => value !== '');
    create.mutate({ repo, ...Object.fromEntries(given) }, { onSuccess: ({ id }) => onDone(id) });
  };
  const isKnown = problems.some(({ field }) => field === 'name' || field in values);
  return (
    <Card style={{ marginBottom: 16, maxWidth: 880 }}>
      {link.repo && <Alert type="info" showIcon title={t('folder-imports.from-link')} />}
      {error && !isKnown && <ErrorNotice error={error} />}
      <Form layout="vertical" onFinish={submit} style={{ marginTop: 12 }}>
        <Form.Item {...item('repo')} extra={t('folder-imports.repo-help')}>
          <Input autoFocus {...input('repo')} />
        </Form.Item>
        <div className="bai-import-pair">
          <Form.Item {...item('branch')}>
            <Input {...input('branch')} />
          </Form.Item>
          <Form.Item {...item('path')} extra={t('folder-imports.path-help')}>
            <Input {...input('path')} />
          </Form.Item>
        </div>
        <Form.Item label={t('folder-imports.target')}>
          <Segmented
            value={target}
            onChange={setTarget}
            aria-label={t('folder-imports.target')}
            options={TARGETS.map(value => ({ value, label: t(`folder-imports.target-${value}`) }))}
          />
        </Form.Item>
        <div className="bai-import-pair">
          {target === 'new' ? (
            <Form.Item {...item('folder')} extra={t('folder-imports.folder-help')}>
              <Input {...input('folder')} placeholder={shown?.folder} />
            </Form.Item>
          ) : (
            <Form.Item {...item('into')}>
              <FolderSelect
                value={values.into}
                onChange={into => setValues(old => ({ ...old, into }))}
              />
            </Form.Item>
          )}
          <Form.Item {...item('directory')} extra={t('folder-imports.directory-help')}>
            <Input {...input('directory')} />
          </Form.Item>
        </div>
        <Collapse
          ghost
          items={[
            {
              key: 'more',
              label: t('folder-imports.more'),
              children: (
                <>
                  <Form.Item {...item('token')} extra={t('folder-imports.token-help')}>
                    <Input.Password {...input('token')} autoComplete="new-password" />
                  </Form.Item>
                  <Form.Item {...item('urlpath')} extra={t('folder-imports.urlpath-help')}>
                    <Input {...input('urlpath')} />
                  </Form.Item>
                </>
              )
            },
            {
              key: 'badge',
              label: t('folder-imports.badge'),
              children: <BadgeText source={{ repo: repo.trim(), branch, path, urlpath }} />
            }
          ]}
        />
        {shown && (
          <Preview
            preview={shown}
            folder={target === 'new' ? values.folder || shown.folder : values.into}
            directory={values.directory}
            hasToken={values.token !== ''}
          />
        )}
        <Button
          type="primary"
          htmlType="submit"
          loading={create.isPending}
          disabled={!shown || (target === 'existing' && !values.into)}
        >
          {t('folder-imports.import')}
        </Button>
      </Form>
    </Card>
  );
}

interface PreviewProps {
  preview: ImportPreview;
  folder: string;
  directory: string;
  hasToken: boolean;
}

/** What will be fetched, from which host, and where it will be stored. */
function Preview({ preview, folder, directory, hasToken }: PreviewProps) {
  const { t, i18n } = useTranslation();
  const place = directory ? `${folder}/${directory}` : folder;
  const rows = {
    what: (
      <>
        {t(`folder-imports.kind-${preview.kind}`)}: <UserText text={preview.source} />
        {preview.branch && ` (${preview.branch})`}
      </>
    ),
    from: (
      <>
        <UserText text={preview.host} />
        {hasToken && ` – ${t('folder-imports.sends-token')}`}
      </>
    ),
    to: <UserText text={place} />,
    limit: formatBytes(preview.max_bytes, i18n.language)
  };
  return (
    <Descriptions
      bordered
      size="small"
      column={1}
      title={t('folder-imports.preview')}
      style={{ marginBottom: 16, overflowWrap: 'anywhere' }}
      items={Object.entries(rows).map(([key, children]) => ({
        key,
        label: t(`folder-imports.preview-${key}`),
        children
      }))}
    />
  );
}

function FolderSelect({ value, onChange }: { value: string; onChange: (id: string) => void }) {
  const list = { limit: MAX_FOLDERS, offset: 0, sort: 'name', filters: { status: 'ready' } };
  const { data } = useQuery(foldersQuery(list));
  return (
    <Select
      id="import-into"
      showSearch={{ optionFilterProp: 'label' }}
      {...(value ? { value } : {})}
      onChange={onChange}
      options={(data?.items ?? []).filter(isWritable).map(({ id, name, project }) => ({
        value: id,
        label: project ? `${name} (${project})` : name
      }))}
    />
  );
}

/** The debounced value. */
function useDelayed(value: string): string {
  const [delayed, setDelayed] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDelayed(value), PREVIEW_DELAY_MILLIS);
    return () => clearTimeout(timer);
  }, [value]);
  return delayed;
}
