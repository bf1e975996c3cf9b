import { activationViews, BY_FLAG, type Entity } from '../../components/entities/entity';
import { EntityPage } from '../../components/entities/EntityPage';
import { Words } from '../../components/entities/Words';
import { useQuery } from '@tanstack/react-query';
import { meQuery } from '../../data/accounts/me';
import type { Item } from '../../data/entities';
import { Links } from './Links';
import { LostAgentOptions } from './LostAgentOptions';
import { PROVISIONED_MACHINES } from './machines';
import { PreemptionOptions } from './PreemptionOptions';
import { ProvisioningOptions } from './ProvisioningOptions';
import { optionTexts } from './schedulerOptions';

const RESOURCE_GROUPS: Entity = {
  name: 'resource-groups',
  path: '/resource-groups',
  id: 'name',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'description' },
    { key: 'is_active', isSortable: true },
    { key: 'is_default', isSortable: true },
    { key: 'is_public', isSortable: true },
    { key: 'engine', isSortable: true },
    { key: 'scheduler', isSortable: true },
    {
      key: 'scheduler_opts',
      render: group => <Words words={optionTexts(group['scheduler_opts'] as Item)} />
    },
    { key: 'allowed_session_types' },
    { key: 'total_resource_slots', isOptional: true },
    { key: 'max_concurrent_sessions', isSortable: true, isOptional: true, noLimit: null },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'name__contains' }],
  fields: [
    { key: 'name', kind: 'text', isRequired: true, only: 'create' },
    { key: 'description', kind: 'text' },
    { key: 'is_active', kind: 'switch', only: 'change' },
    { key: 'is_default', kind: 'switch' },
    { key: 'is_public', kind: 'switch' },
    { key: 'scheduler', kind: 'choice', choices: ['fifo', 'lifo', 'drf', 'fair-share'] },
    { key: 'scheduler_opts', kind: 'json' },
    {
      key: 'allowed_session_types',
      kind: 'choices',
      choices: ['interactive', 'batch', 'inference', 'system']
    },
    { key: 'total_resource_slots', kind: 'slots' },
    { key: 'max_concurrent_sessions', kind: 'number', isNullable: true }
  ],
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true,
  views: activationViews(BY_FLAG),
  activation: BY_FLAG
};

/**
 * Resource groups, with the domains, projects, users and keypairs that are linked to each, and the
 * machines that were started for them.
 */
export function ResourceGroupsPage() {
  const { data: me } = useQuery(meQuery);
  const isWriter = RESOURCE_GROUPS.writers.some(role => role === me?.role);
  return (
    <EntityPage
      path="/resource-groups"
      title="pages.resource-groups"
      entities={[RESOURCE_GROUPS, PROVISIONED_MACHINES]}
      details={(entity, group) =>
        entity === RESOURCE_GROUPS && (
          <>
            <PreemptionOptions group={group} isWriter={isWriter} />
            <LostAgentOptions group={group} isWriter={isWriter} />
            <ProvisioningOptions group={group} isWriter={isWriter} />
            <Links group={group} isWriter={isWriter} />
          </>
        )
      }
    />
  );
}
