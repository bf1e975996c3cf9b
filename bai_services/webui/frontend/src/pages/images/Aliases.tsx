import { useState } from 'react';
import { App, Button, Flex, Input, Tag, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useChangeAlias } from '../../data/cluster/imageAliases';
import type { Item } from '../../data/entities';

/** The short names of an image. */
export function Aliases({ image }: { image: Item }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const change = useChangeAlias(String(image['id']));
  const [alias, setAlias] = useState('');
  const set = (name: string, isAlias: boolean) =>
    change.mutate(
      { alias: name, isAlias },
      { onSuccess: () => setAlias(''), onError: error => void message.error(error.message) }
    );
  return (
    <section aria-label={t('images.aliases')}>
      <Typography.Title level={5}>{t('images.aliases')}</Typography.Title>
      <Flex wrap gap="small" align="center">
        {(image['aliases'] as string[]).map(name => (
          <Tag
            key={name}
            closable={{ 'aria-label': t('images.remove-alias', { name }) }}
            onClose={event => {
              // Keep the tag until the refreshed list no longer contains the alias.
              event.preventDefault();
              set(name, false);
            }}
          >
            {name}
          </Tag>
        ))}
        <Input
          style={{ width: 200 }}
          value={alias}
          onChange={event => setAlias(event.target.value)}
          onPressEnter={() => alias && set(alias, true)}
          placeholder={t('images.new-alias')}
          aria-label={t('images.new-alias')}
        />
        <Button disabled={!alias} loading={change.isPending} onClick={() => set(alias, true)}>
          {t('images.add')}
        </Button>
      </Flex>
    </section>
  );
}
