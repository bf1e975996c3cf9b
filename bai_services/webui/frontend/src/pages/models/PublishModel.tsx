import { useState } from 'react';
import {
  Alert,
  Button,
  Drawer,
  Flex,
  Form,
  Grid,
  Input,
  InputNumber,
  Segmented,
  Select,
  Upload
} from 'antd';
import { UploadOutlined } from '@ant-design/icons';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ApiError } from '../../data/client';
import { foldersQuery } from '../../data/folders/folders';
import { usePublishModel } from './usePublishModel';
import { fieldOfProblem, type PublishValues } from './definition';

const WIDTH = 640;
const MAX_FOLDERS = 500;
// The limits in core/models/cards.py and core/tags.py.
const MAX_TEXT = 255;
const MAX_DESCRIPTION = 2000;
const MAX_TAG = 64;
const MAX_README = 128 * 1024;
const AMOUNT = /^\d+(\.\d+)?$/;
const SIZE = /^\d+(\.\d+)?[kmgtp]?i?b?$/i;

interface PublishModelProps {
  stores: readonly { id: string; name: string; domain: string }[];
  onClose: () => void;
  /** Called with the id of the model. */
  onDone: (id: string) => void;
}

/** Form that publishes a folder of a model store as a model, with a definition and a README. */
export function PublishModel({ stores, onClose, onDone }: PublishModelProps) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const [form] = Form.useForm<PublishValues>();
  const [isNew, setIsNew] = useState(true);
  const [files, setFiles] = useState<File[]>([]);
  const [error, setError] = useState<string>();
  const { publish, isPending } = usePublishModel();
  const show = (problem: Error) => {
    const texts =
      problem instanceof ApiError && problem.problems.length > 0
        ? problem.problems.map(each => each.problem)
        : [problem.message];
    const name =
      problem instanceof ApiError &&
      (problem.code === 'already-exists' || problem.problems.some(({ field }) => field === 'name'))
        ? 'folder'
        : fieldOfProblem(problem.message);
    if (name) {
      form.setFields([{ name, errors: texts }]);
      form.scrollToField(name, { block: 'center' });
    } else {
      setError(problem.message);
    }
  };
  const submit = async (values: PublishValues) => {
    setError(undefined);
    try {
      onDone(await publish(values, files));
    } catch (problem) {
      show(problem as Error);
    }
  };
  return (
    <Drawer
      open
      onClose={onClose}
      size={isWide ? WIDTH : '100%'}
      title={t('model-publication.title')}
      footer={
        <Flex gap="small" justify="end">
          <Button onClick={onClose}>{t('entities.cancel')}</Button>
          <Button type="primary" loading={isPending} onClick={form.submit}>
            {t('model-publication.publish')}
          </Button>
        </Flex>
      }
    >
      {error && <Alert type="error" showIcon title={error} style={{ marginBottom: 16 }} />}
      <Form<PublishValues>
        form={form}
        layout="vertical"
        scrollToFirstError={{ block: 'center' }}
        initialValues={{ project: stores.length === 1 ? stores[0]?.id : undefined }}
        onFinish={values => void submit(values)}
      >
        <StoreField stores={stores} />
        <Segmented
          value={isNew ? 'new' : 'existing'}
          onChange={value => setIsNew(value === 'new')}
          aria-label={t('model-publication.folder')}
          options={['new', 'existing'].map(value => ({
            value,
            label: t(`model-publication.folder-${value}`)
          }))}
          style={{ marginBottom: 12 }}
        />
        {isNew ? <NewFolderField /> : <ExistingFolderField />}
        <Form.Item label={t('model-publication.files')} extra={t('model-publication.files-help')}>
          <Upload
            multiple
            fileList={files.map((file, index) => ({ uid: String(index), name: file.name }))}
            beforeUpload={(_, list) => {
              setFiles(list);
              return false;
            }}
            onRemove={({ uid }) => setFiles(files.filter((_, index) => String(index) !== uid))}
          >
            <Button icon={<UploadOutlined />}>{t('model-publication.choose-files')}</Button>
          </Upload>
        </Form.Item>
        <CardFields />
      </Form>
    </Drawer>
  );
}

function StoreField({ stores }: Pick<PublishModelProps, 'stores'>) {
  const { t } = useTranslation();
  return (
    <Form.Item
      name="project"
      label={t('model-imports.project')}
      rules={[{ required: true, message: t('entities.required') }]}
      hidden={stores.length === 1}
    >
      <Select
        options={stores.map(({ id, name, domain }) => ({ value: id, label: `${domain}/${name}` }))}
      />
    </Form.Item>
  );
}

function NewFolderField() {
  const { t } = useTranslation();
  return (
    <Form.Item
      name="folder"
      label={t('models.clone-name')}
      extra={t('model-publication.folder-help')}
      preserve={false}
      rules={[{ required: true, message: t('entities.required') }]}
    >
      <Input autoFocus autoComplete="off" spellCheck={false} maxLength={MAX_TAG} />
    </Form.Item>
  );
}

/** The folders of the chosen store. */
function ExistingFolderField() {
  const { t } = useTranslation();
  const project = Form.useWatch<string | undefined>('project');
  const { data, isPending } = useQuery({
    ...foldersQuery({
      limit: MAX_FOLDERS,
      offset: 0,
      sort: 'name',
      filters: { project_id: project ?? '', status: 'ready' }
    }),
    enabled: project !== undefined
  });
  return (
    <Form.Item
      name="existing"
      label={t('models.folder')}
      extra={t('model-publication.existing-help')}
      preserve={false}
      rules={[{ required: true, message: t('entities.required') }]}
    >
      <Select
        loading={isPending && project !== undefined}
        showSearch={{ optionFilterProp: 'label' }}
        notFoundContent={t('launcher.no-folders')}
        options={(data?.items ?? []).map(({ id, name }) => ({ value: id, label: name }))}
      />
    </Form.Item>
  );
}

/** The metadata of the card, its resources, its command and its README. */
function CardFields() {
  const { t } = useTranslation();
  const text = (name: keyof PublishValues, label: string, isRequired = false) => (
    <Form.Item
      name={name}
      label={label}
      rules={isRequired ? [{ required: true, message: t('entities.required') }] : []}
    >
      <Input autoComplete="off" maxLength={MAX_TEXT} />
    </Form.Item>
  );
  const amount = (name: 'cpu' | 'mem', pattern: RegExp, placeholder: string) => (
    <Form.Item
      name={name}
      label={t('model-publication.minimum', { slot: t(`launcher.slot-${name}`) })}
      rules={[{ pattern, message: t('model-publication.amount', { example: placeholder }) }]}
    >
      <Input autoComplete="off" placeholder={placeholder} />
    </Form.Item>
  );
  const tags = (name: 'framework' | 'label', label: string) => (
    <Form.Item
      name={name}
      label={label}
      extra={t('model-publication.tags-help')}
      rules={[
        {
          validator: (_: unknown, values?: string[]) =>
            values?.some(value => value.length > MAX_TAG)
              ? Promise.reject(new Error(t('model-publication.long-tag', { count: MAX_TAG })))
              : Promise.resolve()
        }
      ]}
    >
      <Select mode="tags" open={false} suffix={null} tokenSeparators={[',']} maxCount={32} />
    </Form.Item>
  );
  return (
    <>
      {text('title', t('model-publication.model-title'), true)}
      {text('version', t('models.version'))}
      {text('author', t('models.author'))}
      <Form.Item name="description" label={t('model-publication.description')}>
        <Input.TextArea
          autoSize={{ minRows: 2, maxRows: 8 }}
          maxLength={MAX_DESCRIPTION}
          showCount
        />
      </Form.Item>
      {text('task', t('models.task'))}
      {text('license', t('models.license'))}
      {tags('framework', t('models.frameworks'))}
      {tags('label', t('models.labels'))}
      {amount('cpu', AMOUNT, '1')}
      {amount('mem', SIZE, '2g')}
      <Form.Item
        name="command"
        label={t('endpoints.command')}
        extra={t('model-publication.command-help')}
      >
        <Input.TextArea autoSize={{ minRows: 1, maxRows: 8 }} spellCheck={false} />
      </Form.Item>
      <Form.Item name="port" label={t('endpoints.port')}>
        <InputNumber min={2} max={65535} precision={0} placeholder="8000" />
      </Form.Item>
      <Form.Item
        name="readme"
        label={t('models.readme')}
        extra={t('model-publication.readme-help')}
      >
        <Input.TextArea autoSize={{ minRows: 4, maxRows: 20 }} maxLength={MAX_README} />
      </Form.Item>
    </>
  );
}
