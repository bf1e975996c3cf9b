import { useState } from 'react';
import { Button, Flex, Form, Input, Select, Tag } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { ImageIcon } from '../../../components/ImageLabel';
import { optionsQuery } from '../../../data/sessions/launch';
import { environmentsOf, type Environment } from '../../launcher/environments';

/** The image: one of the list with a search, or a name that is not in the list. */
export function ImageField() {
  const { t } = useTranslation();
  const form = Form.useFormInstance();
  const project = Form.useWatch<string | undefined>('project');
  const chosen = Form.useWatch<string | undefined>('image');
  const [mode, setMode] = useState<'choose' | 'type'>();
  const options = useQuery(optionsQuery(project ?? ''));
  const images = options.data?.images;
  const isListed = !chosen || !images || images.some(({ name }) => name === chosen);
  // Show an unlisted image as a typed name: that of an earlier revision may be an alias, or may not
  // be offered any more.
  const isTyped = (mode ?? (isListed ? 'choose' : 'type')) === 'type';
  const initial = options.data?.projects.find(({ id }) => id === options.data.project);
  const defaultHelp = initial?.default_image
    ? t('launcher.image-default', { image: initial.default_image })
    : t('endpoints.image-help');
  return (
    <div style={{ marginBottom: 24 }}>
      {options.error && (
        <ErrorNotice error={options.error} onRetry={() => void options.refetch()} />
      )}
      <Form.Item
        name="image"
        label={t('endpoints.image')}
        extra={isTyped ? t('launcher.image-typed-help') : chosen ? undefined : defaultHelp}
        style={{ marginBottom: 0 }}
        {...(!isTyped && {
          getValueProps: (value?: string) => ({ value: value === '' ? undefined : value }),
          normalize: (value?: string) => value ?? ''
        })}
      >
        {isTyped ? (
          <Input autoComplete="off" spellCheck={false} />
        ) : (
          <Select
            allowClear
            loading={options.isPending}
            showSearch={{ optionFilterProp: 'text' }}
            options={groupsOf(environmentsOf(images ?? []), t('launcher.other-images'))}
          />
        )}
      </Form.Item>
      <Button
        type="link"
        size="small"
        style={{ paddingInline: 0 }}
        onClick={() => {
          setMode(isTyped ? 'choose' : 'type');
          form.setFields([{ name: 'image', value: '', errors: [] }]);
        }}
      >
        {t(isTyped ? 'launcher.choose-image' : 'launcher.type-image')}
      </Button>
    </div>
  );
}

/** The options of the list, grouped by the kind of the images. */
function groupsOf(environments: Environment[], other: string) {
  const kinds = [...new Set(environments.map(({ kind }) => kind))].sort();
  return kinds.map(kind => ({
    label: kind || other,
    options: environments
      .filter(each => each.kind === kind)
      .flatMap(({ images }) => images)
      .map(({ name, architecture, aliases }) => ({
        value: name,
        text: [name, ...aliases].join(' '),
        label: (
          <Flex gap={4} align="center">
            <ImageIcon name={name} />
            <span style={{ overflow: 'hidden', textOverflow: 'ellipsis' }} title={name}>
              {name}
            </span>
            <Tag style={{ marginInline: 'auto 0' }}>{architecture}</Tag>
          </Flex>
        )
      }))
  }));
}
