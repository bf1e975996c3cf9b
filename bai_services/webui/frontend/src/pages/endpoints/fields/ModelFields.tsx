import { Form, Input, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { optionsQuery } from '../../../data/sessions/launch';

interface Mount {
  vfolder: string;
  path?: string;
}

/** The folder of the model, further folders, and the path of the model in it. */
export function ModelFields() {
  const { t } = useTranslation();
  const project = Form.useWatch<string | undefined>('project');
  const folder = Form.useWatch<string | undefined>('model_folder');
  const form = Form.useFormInstance();
  const options = useQuery(optionsQuery(project ?? ''));
  const names = (options.data?.vfolders ?? []).filter(each => !each.is_auto_mounted);
  // A folder that was mounted before keeps its path.
  const mountOf = (vfolder: string): Mount =>
    ((form.getFieldValue('mounts') ?? []) as Mount[]).find(each => each.vfolder === vfolder) ?? {
      vfolder
    };
  return (
    <>
      <Form.Item
        name="model_folder"
        label={t('endpoints.model-folder')}
        extra={t('endpoints.model-folder-help')}
        getValueProps={value => ({ value: (value as string) || undefined })}
        normalize={value => (value as string | undefined) ?? ''}
      >
        <Select
          allowClear
          loading={options.isPending}
          showSearch={{ optionFilterProp: 'label' }}
          notFoundContent={t('launcher.no-folders')}
          options={names.map(({ name, owner }) => ({ value: name, label: `${name} · ${owner}` }))}
        />
      </Form.Item>
      <Form.Item
        name="mounts"
        label={t('endpoints.mounts')}
        extra={t('endpoints.mounts-help')}
        getValueProps={value => ({ value: ((value ?? []) as Mount[]).map(each => each.vfolder) })}
        getValueFromEvent={(chosen: string[]) => chosen.map(vfolder => mountOf(vfolder))}
      >
        <Select
          mode="multiple"
          allowClear
          showSearch={{ optionFilterProp: 'label' }}
          notFoundContent={t('launcher.no-folders')}
          options={names
            .filter(({ name }) => name !== folder)
            .map(({ name, owner }) => ({ value: name, label: `${name} · ${owner}` }))}
        />
      </Form.Item>
      {folder && (
        <Form.Item
          name="definition_file"
          label={t('endpoints.definition-file')}
          extra={t('endpoints.definition-file-help')}
        >
          <Input
            autoComplete="off"
            spellCheck={false}
            maxLength={255}
            placeholder="model-definition.yaml"
          />
        </Form.Item>
      )}
      {folder && (
        <Form.Item
          name="model_path"
          label={t('endpoints.model-path')}
          extra={t('endpoints.model-path-help')}
        >
          <Input autoComplete="off" spellCheck={false} />
        </Form.Item>
      )}
    </>
  );
}
