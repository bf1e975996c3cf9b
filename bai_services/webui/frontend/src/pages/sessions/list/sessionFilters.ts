import { useMemo } from 'react';
import type { TFunction } from 'i18next';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import type { FilterProperty } from '../../../components/list/FilterBar';
import { meQuery } from '../../../data/accounts/me';

const RESULTS = ['undefined', 'success', 'failure'] as const;
const MODES = ['single-node', 'multi-node'] as const;

/** Properties to filter sessions by. Owner, agent and domain are not offered to the role *user*. */
export function useSessionFilters(): FilterProperty[] {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const seesOthers = me !== undefined && me.role !== 'user';
  return useMemo(() => properties(t, seesOthers), [t, seesOthers]);
}

function properties(t: TFunction, seesOthers: boolean): FilterProperty[] {
  const ofAdministrators = [
    { key: 'owner', title: t('sessions.owner') },
    { key: 'agent', title: t('sessions.agent') },
    { key: 'domain', title: t('sessions.domain') }
  ];
  return [
    { key: 'resource_group', title: t('sessions.group') },
    { key: 'image__contains', title: t('sessions.image') },
    { key: 'project', title: t('sessions.project') },
    ...(seesOthers ? ofAdministrators : []),
    { key: 'id', title: t('sessions.id') },
    {
      key: 'result',
      title: t('sessions.result'),
      choices: RESULTS.map(value => ({ value, label: t(`sessions.result-${value}`) }))
    },
    {
      key: 'cluster_mode',
      title: t('sessions.cluster-mode'),
      choices: MODES.map(value => ({ value, label: t(`sessions.mode-${value}`) }))
    },
    { key: 'priority', title: t('sessions.priority') },
    ...(['created', 'terminated'] as const).flatMap(time => [
      { key: `${time}_at__gte`, title: t(`sessions.${time}-since`), isDate: true },
      { key: `${time}_at__lt`, title: t(`sessions.${time}-before`), isDate: true }
    ])
  ];
}
