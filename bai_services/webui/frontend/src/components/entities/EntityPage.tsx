import type { ReactNode } from 'react';
import { Skeleton, Tabs, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { pagesFor, type PagePath } from '../../app/pages';
import type { Item } from '../../data/entities';
import { meQuery } from '../../data/accounts/me';
import { Forbidden } from '../Forbidden';
import type { Entity } from './entity';
import { EntityList } from './EntityList';
import { readEntitySearch, type EntitySearch } from './search';

interface EntityPageProps {
  path: PagePath;
  /** Translation key of the page's title. */
  title: string;
  /** The collections: one tab for each; no tabs if there is only one. */
  entities: readonly Entity[];
  details?: (entity: Entity, item: Item) => ReactNode;
  actions?: (entity: Entity, item: Item) => ReactNode;
  onCreated?: (entity: Entity, item: Item) => void;
  /** Additional buttons above the list, for users who may change the collection. */
  toolbar?: (entity: Entity) => ReactNode;
  /** Additional buttons above the list, for all users. */
  tools?: ReactNode;
}

/** An administration page for one or more collections. */
export function EntityPage({ path, title, entities, ...props }: EntityPageProps) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const search = readEntitySearch(useSearch({ strict: false }));
  const navigate = useNavigate();
  const entity = entities.find(({ name }) => name === search.tab) ?? entities[0];

  if (me === undefined) {
    return <Skeleton active />;
  }
  if (entity === undefined || !pagesFor(me.role).some(page => page.path === path)) {
    return <Forbidden />;
  }
  const change = (changes: EntitySearch) =>
    void navigate({ to: path, search: readEntitySearch({ ...search, ...changes }) });
  const { details, actions, onCreated } = props;
  return (
    <>
      <Typography.Title level={3} style={{ marginTop: 0 }}>
        {t(title)}
      </Typography.Title>
      {entities.length > 1 && (
        <Tabs
          activeKey={entity.name}
          onChange={tab => void navigate({ to: path, search: { tab } })}
          items={entities.map(({ name }) => ({ key: name, label: t(`${name}.title`) }))}
        />
      )}
      <EntityList
        key={entity.name}
        entity={entity}
        search={search}
        onSearch={change}
        details={details && (item => details(entity, item))}
        toolbar={props.toolbar?.(entity)}
        tools={props.tools}
        actions={actions && (item => actions(entity, item))}
        {...(onCreated ? { onCreated: (item: Item) => onCreated(entity, item) } : {})}
      />
    </>
  );
}
