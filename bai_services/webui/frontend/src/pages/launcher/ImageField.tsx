import { useState } from 'react';
import { Button, Flex, Input, Select, Tag, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { ImageIcon } from '../../components/ImageLabel';
import { partsOfImage } from '../../components/imageName';
import type { SessionOptions } from '../../data/sessions/launch';
import { environmentsOf, type OfferedImage } from './environments';
import { Field, idOf } from './Field';
import { imageOf } from './form';
import { useLauncher } from './launcherContext';

/** The image: an environment and one of its versions, or a name that is not in the list. */
export function ImageField({ options }: { options: SessionOptions }) {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  const [isTyped, setTyped] = useState(form.image !== '' && !imageOf(form, options));
  return (
    <>
      {isTyped ? (
        <Field name="image" label={t('launcher.image')} help={t('launcher.image-typed-help')}>
          <Input
            id={idOf('image')}
            autoComplete="off"
            spellCheck={false}
            value={form.image}
            onChange={event => change({ image: event.target.value.trim() })}
          />
        </Field>
      ) : (
        <ImageChoice options={options} />
      )}
      <Button
        type="link"
        size="small"
        style={{ paddingInline: 0, marginBottom: 12 }}
        onClick={() => {
          setTyped(!isTyped);
          change({ image: '' });
        }}
      >
        {t(isTyped ? 'launcher.choose-image' : 'launcher.type-image')}
      </Button>
    </>
  );
}

function ImageChoice({ options }: { options: SessionOptions }) {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  const initial = options.projects.find(({ id }) => id === options.project)?.default_image;
  const chosen = imageOf(form, options);
  const environment = chosen && partsOfImage(chosen.name).environment;
  const environments = environmentsOf(options.images);
  const versions = environments.find(({ name }) => name === environment)?.images ?? [];
  const kinds = [...new Set(environments.map(({ kind }) => kind))].sort();
  return (
    <Flex wrap gap="middle" align="start">
      <Field
        name="image"
        label={t('launcher.environment')}
        help={!form.image && initial ? t('launcher.image-default', { image: initial }) : undefined}
      >
        <Select
          id={idOf('image')}
          style={{ minWidth: 240 }}
          popupMatchSelectWidth={false}
          showSearch={{ optionFilterProp: 'text' }}
          allowClear={form.image !== '' && { label: t('launcher.clear') }}
          value={environment}
          onChange={(name: string | undefined) =>
            change({
              image: environments.find(each => each.name === name)?.images[0]?.name ?? ''
            })
          }
          options={kinds.map(kind => ({
            label: kind || t('launcher.other-images'),
            options: environments
              .filter(each => each.kind === kind)
              .map(({ name, images }) => ({
                value: name,
                text: [name, ...images.flatMap(({ aliases }) => aliases)].join(' '),
                label: (
                  <>
                    <ImageIcon name={name} /> {name}
                  </>
                )
              }))
          }))}
        />
      </Field>
      {chosen && (
        <Field name="" label={t('launcher.version')}>
          <Flex gap="small" align="center">
            <Select
              aria-label={t('launcher.version')}
              style={{ minWidth: 200 }}
              popupMatchSelectWidth={false}
              value={chosen.name}
              onChange={image => change({ image })}
              options={versions.map(image => ({
                value: image.name,
                label: <Version image={image} />
              }))}
            />
            <Typography.Text
              copyable={{ text: chosen.name, tooltips: [t('images.copy-name'), ''] }}
            />
          </Flex>
        </Field>
      )}
    </Flex>
  );
}

function Version({ image }: { image: OfferedImage }) {
  const { version, tags } = partsOfImage(image.name);
  return (
    <Flex gap={4} align="center">
      {version}
      {[image.architecture, ...tags].map(tag => (
        <Tag key={tag} style={{ marginInlineEnd: 0 }}>
          {tag}
        </Tag>
      ))}
    </Flex>
  );
}
