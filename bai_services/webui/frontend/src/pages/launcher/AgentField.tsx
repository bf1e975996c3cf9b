import { Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../components/amount';
import { placeableAgentsQuery } from '../../data/sessions/launch';
import { meQuery } from '../../data/accounts/me';
import { Field, idOf } from './Field';
import { useLauncher } from './launcherContext';

/** The agent of a session with one kernel; only administrators may choose it. */
export function AgentField() {
  const { t } = useTranslation();
  const { form, change, options } = useLauncher();
  const { data: me } = useQuery(meQuery);
  const isAdmin = me?.role === 'admin' || me?.role === 'superadmin';
  const isOffered = isAdmin && form.cluster_size === 1;
  const agents = useQuery({
    ...placeableAgentsQuery(options?.resource_group ?? ''),
    enabled: isOffered && Boolean(options?.resource_group)
  });
  if (!isOffered) {
    return null;
  }
  return (
    <Field name="agent_list" label={t('launcher.agent')} help={t('launcher.agent-help')}>
      <Select
        id={idOf('agent_list')}
        allowClear={{ label: t('launcher.clear') }}
        showSearch
        placeholder={t('launcher.agent-automatic')}
        value={form.agent_list[0]}
        onChange={(agent: string | undefined) => change({ agent_list: agent ? [agent] : [] })}
        options={(agents.data ?? []).map(({ id, free }) => ({
          value: id,
          label: t('launcher.agent-free', {
            agent: id,
            free: Object.entries(free)
              .map(([slot, amount]) => `${slot} ${shortAmount(slot, amount)}`)
              .join(', ')
          })
        }))}
      />
    </Field>
  );
}
