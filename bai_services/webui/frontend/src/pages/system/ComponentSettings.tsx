import { useState } from 'react';
import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { EntityList } from '../../components/entities/EntityList';
import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import { UserText } from '../../components/UserText';
import type { Item } from '../../data/entities';

const choices = (values: readonly string[]) => values.map(value => ({ value, label: value }));
const code = (key: string) => ({
  key,
  render: (item: Item) => <Code text={item[key] as string | null} />
});

const COMPONENT_SETTINGS: Entity = {
  name: 'component-settings',
  path: '/component-settings',
  id: 'id',
  defaultSort: '-kind',
  columns: [
    { key: 'kind', isSortable: true },
    { key: 'component', isSortable: true },
    { key: 'name', isSortable: true },
    code('value'),
    code('default'),
    { key: 'origin', isSortable: true }
  ],
  filters: [
    { key: 'kind', choices: choices(['hub', 'agent']) },
    { key: 'component' },
    { key: 'name__contains' },
    { key: 'origin', choices: choices(['default', 'environment', 'file']) }
  ],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

/** The settings in force in the Hub and in agents. */
export function ComponentSettings() {
  const { t } = useTranslation();
  const [search, setSearch] = useState<EntitySearch>({});
  return (
    <section aria-label={t('component-settings.title')}>
      <Typography.Title level={4}>{t('component-settings.title')}</Typography.Title>
      <Typography.Paragraph type="secondary">{t('component-settings.help')}</Typography.Paragraph>
      <EntityList
        entity={COMPONENT_SETTINGS}
        search={search}
        onSearch={changes => setSearch(old => readEntitySearch({ ...old, ...changes }))}
      />
    </section>
  );
}

/** A value; null is a secret. */
function Code({ text }: { text: string | null }) {
  const { t } = useTranslation();
  if (text === null || text === '') {
    return text === null ? t('component-settings.hidden') : '–';
  }
  return (
    <code style={{ display: 'inline-block', minWidth: 80, overflowWrap: 'anywhere' }}>
      <UserText text={text} />
    </code>
  );
}
