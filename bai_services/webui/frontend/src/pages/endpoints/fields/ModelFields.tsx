import { Form, Input, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { optionsQuery } from '../../../data/sessions/launch';

/** The folder of the model, and the path of the model in it. */
export function ModelFields() {
  const { t } = useTranslation();
  const project = Form.useWatch<string | undefined>('project');
  const folder = Form.useWatch<string | undefined>('model_folder');
  const options = useQuery(optionsQuery(project ?? ''));
  const names = (options.data?.vfolders ?? []).filter(each => !each.is_auto_mounted);
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
