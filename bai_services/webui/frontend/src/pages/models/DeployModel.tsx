import { AutoComplete, Form, Input, Modal, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { meQuery } from '../../data/accounts/me';
import { useChosenProject } from '../../data/accounts/project';
import { ApiError } from '../../data/client';
import { optionsQuery } from '../../data/sessions/launch';
import { variantsQuery } from '../../data/serving/endpoints';
import {
  presetsQuery,
  storesQuery,
  useDeployModel,
  type ModelCard
} from '../../data/serving/models';

interface DeployValues {
  name?: string;
  project?: string;
  variant?: string;
  image?: string;
  preset?: string;
}

interface DeployModelProps {
  model: ModelCard;
  onClose: () => void;
}

/** Dialog that creates an endpoint of a model; its fields have suitable initial values. */
export function DeployModel({ model, onClose }: DeployModelProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [form] = Form.useForm<DeployValues>();
  const chosen = useChosenProject();
  const { data: me } = useQuery(meQuery);
  const { data: stores } = useQuery(storesQuery);
  // Endpoints are charged to ordinary projects, so exclude the model stores.
  const projects =
    stores && me?.projects.filter(({ id }) => stores.every(store => store.id !== id));
  const initial = projects?.find(({ id }) => id === chosen?.id) ?? projects?.[0];
  const project = Form.useWatch('project', form) ?? initial?.id ?? '';
  const { data: variants } = useQuery(variantsQuery);
  const { data: presets } = useQuery(presetsQuery(project));
  const { data: options } = useQuery(optionsQuery(project));
  const deploy = useDeployModel(model.id);
  const problemOf = (field: string) => {
    const { error } = deploy;
    const found =
      error instanceof ApiError ? error.problems.find(each => each.field === field) : undefined;
    return found ? { validateStatus: 'error' as const, help: found.problem } : {};
  };
  const isShown =
    deploy.error instanceof ApiError &&
    deploy.error.problems.some(({ field }) => ['name', 'variant', 'image'].includes(field));
  const submit = (values: DeployValues) => {
    const given = Object.entries(values).filter(([, value]) => Boolean(value));
    deploy.mutate(Object.fromEntries(given), {
      onSuccess: ({ id }) => void navigate({ to: '/endpoints', search: { item: id } })
    });
  };
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('models.deploy-title', { name: model.title })}
      okText={t('models.deploy')}
      cancelText={t('entities.cancel')}
      onOk={form.submit}
      confirmLoading={deploy.isPending}
    >
      {deploy.error && !isShown && <ErrorNotice error={deploy.error} />}
      <Form
        form={form}
        layout="vertical"
        key={initial?.id ?? ''}
        initialValues={{ name: endpointName(model.folder), project: initial?.id }}
        onFinish={submit}
      >
        <Form.Item
          name="name"
          label={t('models.endpoint-name')}
          rules={[{ required: true, message: t('entities.required') }]}
          {...problemOf('name')}
        >
          <Input autoFocus autoComplete="off" spellCheck={false} />
        </Form.Item>
        <Form.Item
          name="project"
          label={t('endpoints.project')}
          hidden={(projects?.length ?? 0) < 2}
        >
          <Select
            showSearch={{ optionFilterProp: 'label' }}
            options={(projects ?? []).map(({ id, name }) => ({ value: id, label: name }))}
          />
        </Form.Item>
        {!model.has_command && (
          <Form.Item
            name="variant"
            label={t('endpoints.variant')}
            extra={t('models.variant-help')}
            rules={[{ required: true, message: t('entities.required') }]}
            {...problemOf('variant')}
          >
            <Select
              options={(variants ?? [])
                .filter(({ command }) => command !== '')
                .map(({ name, title }) => ({ value: name, label: title }))}
            />
          </Form.Item>
        )}
        <Form.Item
          name="image"
          label={t('endpoints.image')}
          extra={t('endpoints.image-help')}
          {...problemOf('image')}
        >
          <AutoComplete
            allowClear
            showSearch={{ filterOption: (text, option) => option?.value.includes(text) ?? false }}
            options={[...new Set(options?.images.map(({ name }) => name))].map(value => ({
              value
            }))}
          />
        </Form.Item>
        <Form.Item name="preset" label={t('models.preset')} extra={t('models.preset-help')}>
          <Select
            allowClear
            placeholder={t('models.preset-smallest')}
            options={(presets ?? []).map(({ name }) => ({ value: name, label: name }))}
          />
        </Form.Item>
      </Form>
    </Modal>
  );
}

const MAX_NAME = 48;

/** A name for the endpoint of a folder, as `endpoint_name` in manager/models/models.py. */
function endpointName(folder: string): string {
  const name = folder
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');
  return (/^[a-z]./.test(name) ? name : `model-${name}`).slice(0, MAX_NAME).replace(/-$/, '');
}
