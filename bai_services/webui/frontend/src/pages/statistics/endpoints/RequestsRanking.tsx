import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { UserText } from '../../../components/UserText';
import {
  endpointReportQuery,
  type EndpointReportRequest,
  type EndpointUsageRow
} from '../../../data/usage/endpointReports';
import { barColumn, RankingSection } from '../RankingSection';
import type { EndpointGroup } from '../search';
import { endpointTokenText } from './tokenText';

interface RequestsRankingProps {
  request: EndpointReportRequest;
  by: EndpointGroup;
  groups: readonly EndpointGroup[];
  onBy: (by: EndpointGroup) => void;
}

/** The groups with the most requests. */
export function RequestsRanking({ request, by, groups, onBy }: RequestsRankingProps) {
  const { t, i18n } = useTranslation();
  const { data, error, refetch } = useQuery(endpointReportQuery(request));
  const number = new Intl.NumberFormat(i18n.language);
  const count = (key: 'input_tokens' | 'output_tokens', label: string) => ({
    title: label,
    align: 'right' as const,
    render: (_: unknown, row: EndpointUsageRow) => number.format(row[key])
  });
  return (
    <RankingSection<EndpointUsageRow, EndpointGroup>
      title={t('endpoint-usage.ranking')}
      by={by}
      groups={groups.map(value => ({ value, label: t(`endpoint-usage.by-${value}`) }))}
      onBy={onBy}
      data={data}
      error={error}
      onRetry={() => void refetch()}
      empty={t('endpoint-usage.none')}
      columns={[
        {
          title: t(`endpoint-usage.by-${by}`),
          render: (_, { name }) => (
            <UserText text={data?.by === 'token' ? endpointTokenText(name) : name || '–'} />
          )
        },
        // Endpoints of different owners can have the same name.
        ...(by === 'token' || by === 'endpoint'
          ? [
              {
                title: t('endpoint-usage.by-user'),
                render: (_: unknown, { owner }: EndpointUsageRow) => (
                  <UserText text={owner || '–'} />
                )
              }
            ]
          : []),
        barColumn(
          t('endpoint-usage.requests'),
          data?.rows ?? [],
          row => row.requests,
          value => number.format(value)
        ),
        count('input_tokens', t('endpoint-usage.input-tokens')),
        count('output_tokens', t('endpoint-usage.output-tokens'))
      ]}
    />
  );
}
