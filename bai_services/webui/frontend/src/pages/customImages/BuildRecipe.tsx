import { useState } from 'react';
import { App, Button, Collapse, Form, Input, Modal, Select, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { useIsReadOnly } from '../../data/accounts/me';
import { useBuild } from '../../data/cluster/customImages';
import { imageNamesQuery } from '../../data/cluster/imagePulls';
import { RecipeSource } from './RecipeSource';

const NAME = /^[A-Za-z0-9_-]{4,32}$/;
const MAX_CHARACTERS = 65536;
const VISIBILITIES = ['private', 'project'] as const;
const FILES = [
  { name: 'requirements', file: 'requirements.txt', example: 'pandas==2.2.3' },
  { name: 'apt', file: 'apt.txt', example: 'graphviz' },
  { name: 'conda', file: 'environment.yml', example: 'dependencies: [r-base]' },
  { name: 'dockerfile', file: 'Dockerfile', example: 'RUN echo hello > /opt/hello' }
] as const;

type FileName = (typeof FILES)[number]['name'];
type Values = Partial<Record<FileName, string>> & {
  name: string;
  image?: string;
  visibility: (typeof VISIBILITIES)[number];
};

/** Button that opens a dialog to build a custom image from a recipe. */
export function BuildRecipe() {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  const isReadOnly = useIsReadOnly();
  return isReadOnly === false ? (
    <>
      <Button onClick={() => setIsOpen(true)}>{t('custom-images.build')}</Button>
      {isOpen && <BuildDialog onClose={() => setIsOpen(false)} />}
    </>
  ) : null;
}

function BuildDialog({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<Values>();
  const [isEmpty, setIsEmpty] = useState(false);
  const images = useQuery(imageNamesQuery);
  const build = useBuild();
  const fill = (recipe: Record<string, string>) => {
    form.setFieldsValue(
      Object.fromEntries(FILES.map(({ name, file }) => [name, recipe[file] ?? '']))
    );
    void message.success(t('custom-images.source-done', { files: Object.keys(recipe).join(', ') }));
  };
  const submit = ({ name, image, visibility, ...texts }: Values) => {
    const given = FILES.filter(file => texts[file.name]?.trim());
    setIsEmpty(given.length === 0);
    if (given.length === 0) {
      return;
    }
    const recipe = Object.fromEntries(given.map(file => [file.file, texts[file.name] ?? '']));
    build.mutate(
      {
        name,
        visibility,
        recipe,
        description: '',
        labels: {},
        image: image ?? null,
        project: null,
        resource_group: null,
        resources: {}
      },
      {
        onSuccess: () => {
          void message.success(t('custom-images.build-begun', { name }));
          onClose();
        }
      }
    );
  };
  return (
    <Modal
      open
      title={t('custom-images.build')}
      okText={t('custom-images.build-button')}
      confirmLoading={build.isPending}
      onCancel={onClose}
      onOk={form.submit}
    >
      <Typography.Paragraph type="secondary">{t('custom-images.build-help')}</Typography.Paragraph>
      <Form
        form={form}
        layout="vertical"
        onFinish={submit}
        initialValues={{ visibility: 'private' }}
      >
        <Form.Item
          name="name"
          label={t('custom-images.name')}
          extra={t('custom-images.name-help')}
          rules={[{ required: true, pattern: NAME, message: t('custom-images.name-help') }]}
        >
          <Input autoFocus autoComplete="off" maxLength={32} />
        </Form.Item>
        <Form.Item
          name="image"
          label={t('custom-images.base-image')}
          extra={t('custom-images.base-help')}
        >
          <Select
            allowClear
            loading={images.isPending}
            options={[...new Set((images.data ?? []).map(image => image.name))].map(value => ({
              value,
              label: value
            }))}
            showSearch={{ optionFilterProp: 'label' }}
          />
        </Form.Item>
        <Collapse
          size="small"
          style={{ marginBottom: 24 }}
          items={[
            {
              key: 'source',
              label: t('custom-images.source'),
              children: <RecipeSource onRead={fill} />
            }
          ]}
        />
        {FILES.map(({ name, file, example }) => (
          <Form.Item key={name} name={name} label={<code>{file}</code>}>
            <Input.TextArea
              autoSize={{ minRows: 1, maxRows: 8 }}
              maxLength={MAX_CHARACTERS}
              placeholder={example}
              spellCheck={false}
              style={{ fontFamily: 'monospace' }}
            />
          </Form.Item>
        ))}
        <Form.Item name="visibility" label={t('custom-images.visibility')}>
          <Select
            options={VISIBILITIES.map(value => ({
              value,
              label: t(`custom-images.visibility-${value}`)
            }))}
          />
        </Form.Item>
      </Form>
      {isEmpty && (
        <Typography.Text type="danger" role="alert">
          {t('custom-images.recipe-empty')}
        </Typography.Text>
      )}
      {build.error && <ErrorNotice error={build.error} />}
    </Modal>
  );
}
