import { useState } from 'react';
import { App, Button, Flex, List, Select, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ReferenceSelect } from '../../components/entities/FieldControl';
import { PagedList, rangeOf } from '../../components/list/PagedList';
import { LINK_KINDS, linksQuery, useChangeLink } from '../../data/cluster/groupLinks';
import type { Item } from '../../data/entities';

type Kind = (typeof LINK_KINDS)[number];

const COLLECTIONS = {
  domain: { path: '/domains', name: 'name' },
  project: { path: '/projects', name: 'name', id: 'id' },
  user: { path: '/users', name: 'username' },
  keypair: { path: '/keypairs', name: 'access_key' }
} as const;

interface LinksProps {
  group: Item;
  isWriter: boolean;
}

/** The domains, projects, users and keypairs that may use a group that is not public. */
export function Links({ group, isWriter }: LinksProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const name = String(group['name']);
  const [page, setPage] = useState(1);
  const links = useQuery(linksQuery(name, rangeOf(page)));
  const change = useChangeLink(name);
  const set = (kind: string, target: string, isLinked: boolean) =>
    change.mutate(
      { kind, target, isLinked },
      { onError: error => void message.error(error.message) }
    );
  return (
    <section aria-label={t('resource-groups.links')}>
      <Typography.Title level={5}>{t('resource-groups.links')}</Typography.Title>
      <Typography.Paragraph type="secondary">
        {t(group['is_public'] === true ? 'resource-groups.for-all' : 'resource-groups.for-some')}
      </Typography.Paragraph>
      {isWriter && <NewLink isPending={change.isPending} onLink={set} />}
      <PagedList
        query={links}
        page={page}
        onPage={setPage}
        locale={{ emptyText: t('resource-groups.no-links') }}
        renderItem={link => (
          <List.Item
            actions={
              isWriter
                ? [
                    <Button
                      key="remove"
                      size="small"
                      aria-label={t('resource-groups.remove-link', { name: link.name })}
                      onClick={() => set(link.kind, link.target, false)}
                    >
                      {t('resource-groups.remove')}
                    </Button>
                  ]
                : []
            }
          >
            <span>
              <Tag>{t(`resource-groups.kind-${link.kind}`)}</Tag> {link.name}
            </span>
          </List.Item>
        )}
      />
    </section>
  );
}

interface NewLinkProps {
  isPending: boolean;
  onLink: (kind: string, target: string, isLinked: boolean) => void;
}

function NewLink({ isPending, onLink }: NewLinkProps) {
  const { t } = useTranslation();
  const [kind, setKind] = useState<Kind>('domain');
  const [target, setTarget] = useState<string>();
  return (
    <Flex wrap gap="small">
      <Select
        value={kind}
        style={{ width: 130 }}
        aria-label={t('resource-groups.link-kind')}
        options={LINK_KINDS.map(value => ({ value, label: t(`resource-groups.kind-${value}`) }))}
        onChange={value => {
          setKind(value);
          setTarget(undefined);
        }}
      />
      <ReferenceSelect
        key={kind}
        of={COLLECTIONS[kind]}
        value={target ?? null}
        onChange={setTarget}
        aria-label={t('resource-groups.link-name')}
        style={{ minWidth: 220, flex: 1 }}
      />
      <Button
        disabled={target === undefined}
        loading={isPending}
        onClick={() => {
          if (target !== undefined) {
            onLink(kind, target, true);
            setTarget(undefined);
          }
        }}
      >
        {t('resource-groups.add')}
      </Button>
    </Flex>
  );
}
