import { useEffect, useRef } from 'react';
import { theme } from 'antd';
import { BarChart, CustomChart, GaugeChart, HeatmapChart, LineChart } from 'echarts/charts';
import {
  AriaComponent,
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  TooltipComponent,
  VisualMapComponent
} from 'echarts/components';
import { init, use as register, type EChartsCoreOption } from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';
import { useThemeMode } from '../../app/theme';

register([
  AriaComponent,
  BarChart,
  CustomChart,
  DataZoomComponent,
  GaugeChart,
  GridComponent,
  HeatmapChart,
  LegendComponent,
  LineChart,
  SVGRenderer,
  TooltipComponent,
  VisualMapComponent
]);

interface ChartProps {
  option: EChartsCoreOption;
  height: number;
  /** Description of the chart for screen readers. */
  label: string;
}

/** An ECharts chart in the theme's colors. Load it with `LazyChart`: ECharts is large. */
export function Chart({ option, height, label }: ChartProps) {
  const element = useRef<HTMLDivElement>(null);
  const { token } = theme.useToken();
  const { isDark } = useThemeMode();

  useEffect(() => {
    if (!element.current) {
      return;
    }
    const chart = init(element.current, isDark ? 'dark' : null, { renderer: 'svg' });
    chart.setOption({
      animation: false,
      backgroundColor: 'transparent',
      textStyle: { color: token.colorText, fontFamily: token.fontFamily },
      ...option
    });
    const observer = new ResizeObserver(() => chart.resize());
    observer.observe(element.current);
    return () => {
      observer.disconnect();
      chart.dispose();
    };
  }, [option, isDark, token]);

  return <div ref={element} role="img" aria-label={label} style={{ height, width: '100%' }} />;
}
